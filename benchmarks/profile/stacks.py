"""Stacks that samplers saw, collapsed: frames from the outermost on with semicolons between them, and how often."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from linecache import getline

from benchmarks.profile import names

Stacks = Mapping[str, float]

#: A frame that is a smaller part of the whole than this is counted to the one that called it.
SMALLEST = 0.002
_DEEPEST = 45
_PROCESS = re.compile(r'process \d+:"([^"]*)";')
_SEEN = re.compile(rf"(?P<processes>(?:{_PROCESS.pattern})+)(?P<stack>.+) (?P<times>\d+)$")
_THREAD = re.compile(r'sampledThread = "(.*)" \(')
_FRAME = re.compile(r"^ {4}(?P<method>[^\s(]+)\(")
_LINE = re.compile(r":(\d+)\)$")
_DAEMON = "manager (pyspark/daemon.py)"
#: Where Python waits: a sampler takes a thread that waits in the kernel for one that runs now and then.
_WAITS = (
    "SocketIO.readinto (",
    "EpollSelector.select (",
    "PollSelector.select (",
    "SelectSelector.select (",
    "Condition.wait (",
    "Event.wait (",
    "FinalizerWorker.run (",
    "UpdateRequestHandler.handle.<locals>.poll (",
    "CallbackServer.run (",
    "read_int (pyspark/serializers.py)",
    _DAEMON,
)
#: Frames that only lead from one to the next.
_BETWEEN = re.compile(
    r"<frozen |^_run_module_as_main |^Thread\._bootstrap|^java\.lang\.Thread\.run|^java\.util\.concurrent\.|^scala\.|"
    r"\$anonfun\$|\.LazyTry|\.tryWithSafeFinally|\.withActive$|\.doTryWith|\.withAbortTransactionOnFailure$"
)
# What the JVM numbers anew in each run.
_NUMBERED = re.compile(r"(\$\$Lambda)[^.]*|(?<=\D)(/0x[0-9a-f]+|\+0x[0-9a-f]+)")


def of_python(lines: Iterable[str]) -> dict[str, dict[str, float]]:
    """Parse the output of py-spy by part. Processes that Spark did not start are the driver."""
    found: dict[str, Counter[str]] = {}
    for line in lines:
        # Of a process below another one of Python py-spy names both, the nearest last.
        if match := _SEEN.match(line):
            commands = _PROCESS.findall(match["processes"])
            part = names.process_part(commands[-1]) if "pyspark" in commands[-1] else names.DRIVER
            frames = [_LINE.sub(")", frame) for frame in match["stack"].split(";")]
            if frames[-1] == _DAEMON and _collects(match["stack"]):
                frames.append("gc.collect")
            if not frames[-1].startswith(_WAITS):
                found.setdefault(part, Counter())[_joined(frames)] += int(match["times"])
    return {part: dict(stacks) for part, stacks in found.items()}


def _collects(stack: str) -> bool:
    """Return whether a worker collects garbage after a task, and does not wait."""
    line, daemon = _LINE.search(stack), find_spec("pyspark.daemon")
    return bool(line and daemon and daemon.origin and "gc.collect" in getline(daemon.origin, int(line[1])))


def of_jvm(lines: Iterable[str]) -> dict[str, dict[str, float]]:
    """Parse ``jfr print`` of ``jdk.ExecutionSample`` by part of the JVM. A trace has the innermost frame first."""
    found: dict[str, Counter[str]] = {}
    part, frames = "", list[str]()
    for line in lines:
        if match := _THREAD.search(line):
            part, frames = names.thread_part(match[1]), []
        elif match := _FRAME.match(line):
            frames.append(_NUMBERED.sub(r"\1", match["method"]))
        elif line.startswith("}") and part and frames:
            found.setdefault(part, Counter())[_joined(frames[::-1])] += 1
            part = ""
    return {part: dict(stacks) for part, stacks in found.items()}


def _joined(frames: Sequence[str]) -> str:
    """A stack from the outermost frame on, without those that tell nothing."""
    kept = [frame for frame in frames if not _BETWEEN.search(frame)]
    return ";".join(_short(frame) for frame in kept[:_DEEPEST])


def _short(frame: str) -> str:
    """A method of the JVM with its class alone; a function of Python has its file behind it."""
    return frame if " (" in frame or frame == "gc.collect" else ".".join(frame.split(".")[-2:])


def weighed(spent: Stacks, sampled: Mapping[str, Stacks]) -> dict[str, float]:
    """One picture of everything: each part as wide as what it spent, divided as the samples of it are.

    A part that nobody sampled, such as the JIT compiler or PostgreSQL, has no frames in it.
    """
    whole: defaultdict[str, float] = defaultdict(float)
    for part, cost in spent.items():
        stacks = sampled.get(part, {})
        seen = sum(stacks.values())
        for stack, times in stacks.items():
            whole[f"{part};{stack}" if stack else part] += cost * times / seen
        if not seen:
            whole[part] += cost
    return dict(whole)


def pruned(stacks: Stacks, smallest: float = SMALLEST) -> dict[str, float]:
    """The same without frames that are too small to be seen, which count to those that called them."""
    below: defaultdict[str, float] = defaultdict(float)
    for stack, cost in stacks.items():
        frames = stack.split(";")
        for depth in range(1, len(frames) + 1):
            below[";".join(frames[:depth])] += cost
    least = smallest * sum(stacks.values())
    kept: defaultdict[str, float] = defaultdict(float)
    for stack, cost in stacks.items():
        while below[stack] < least and ";" in stack:
            stack = stack.rpartition(";")[0]
        kept[stack] += cost
    return dict(sorted(kept.items()))
