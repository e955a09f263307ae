"""Collapsed stacks: frames from the outermost, joined by semicolons, with their number of samples."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from linecache import getline

from benchmarks.profile import names

Stacks = Mapping[str, float]

#: Frames with a smaller share are merged into their caller.
MIN_SHARE = 0.002
_MAX_DEPTH = 45
_PROCESS = re.compile(r'process \d+:"([^"]*)";')
_SAMPLE = re.compile(rf"(?P<processes>(?:{_PROCESS.pattern})+)(?P<stack>.+) (?P<times>\d+)$")
_THREAD = re.compile(r'sampledThread = "(.*)" \(')
_FRAME = re.compile(r"^ {4}(?P<method>[^\s(]+)\(")
_LINE = re.compile(r":(\d+)\)$")
_DAEMON = "manager (pyspark/daemon.py)"
#: Frames in which Python waits. A sampler sometimes reports a waiting thread as running.
_WAITING = (
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
#: Frames without information.
_BOILERPLATE = re.compile(
    r"<frozen |^_run_module_as_main |^Thread\._bootstrap|^java\.lang\.Thread\.run|^java\.util\.concurrent\.|^scala\.|"
    r"\$anonfun\$|\.LazyTry|\.tryWithSafeFinally|\.withActive$|\.doTryWith|\.withAbortTransactionOnFailure$"
)
# Parts of names that differ between runs of the JVM.
_GENERATED = re.compile(r"(\$\$Lambda)[^.]*|(?<=\D)(/0x[0-9a-f]+|\+0x[0-9a-f]+)")


def of_python(lines: Iterable[str]) -> dict[str, dict[str, float]]:
    """Parse the output of py-spy by component. A process that Spark did not start is the driver."""
    by_part: dict[str, Counter[str]] = {}
    for line in lines:
        # For a child of a Python process, py-spy names all processes, the innermost last.
        if match := _SAMPLE.match(line):
            commands = _PROCESS.findall(match["processes"])
            part = names.process_part(commands[-1]) if "pyspark" in commands[-1] else names.DRIVER
            frames = [_LINE.sub(")", frame) for frame in match["stack"].split(";")]
            if frames[-1] == _DAEMON and _collects_garbage(match["stack"]):
                frames.append("gc.collect")
            if not frames[-1].startswith(_WAITING):
                by_part.setdefault(part, Counter())[_joined(frames)] += int(match["times"])
    return {part: dict(stacks) for part, stacks in by_part.items()}


def _collects_garbage(stack: str) -> bool:
    """Return whether a worker collects garbage after a task, instead of waiting."""
    line, daemon = _LINE.search(stack), find_spec("pyspark.daemon")
    return bool(line and daemon and daemon.origin and "gc.collect" in getline(daemon.origin, int(line[1])))


def of_jvm(lines: Iterable[str]) -> dict[str, dict[str, float]]:
    """Parse ``jfr print`` of ``jdk.ExecutionSample`` by component. A trace starts with the innermost frame."""
    by_part: dict[str, Counter[str]] = {}
    part, frames = "", list[str]()
    for line in lines:
        if match := _THREAD.search(line):
            part, frames = names.thread_part(match[1]), []
        elif match := _FRAME.match(line):
            frames.append(_GENERATED.sub(r"\1", match["method"]))
        elif line.startswith("}") and part and frames:
            by_part.setdefault(part, Counter())[_joined(frames[::-1])] += 1
            part = ""
    return {part: dict(stacks) for part, stacks in by_part.items()}


def _joined(frames: Sequence[str]) -> str:
    """Join frames from the outermost, without boilerplate."""
    kept = [frame for frame in frames if not _BOILERPLATE.search(frame)]
    return ";".join(_short(frame) for frame in kept[:_MAX_DEPTH])


def _short(frame: str) -> str:
    """Return a JVM method as class and method. A Python function, which has its file, is unchanged."""
    return frame if " (" in frame or frame == "gc.collect" else ".".join(frame.split(".")[-2:])


def scaled_stacks(spent: Stacks, sampled: Mapping[str, Stacks]) -> dict[str, float]:
    """Scale the samples of each component to its CPU time.

    A component without samples, such as the JIT compiler or PostgreSQL, has no frames.
    """
    scaled: defaultdict[str, float] = defaultdict(float)
    for part, cost in spent.items():
        stacks = sampled.get(part, {})
        seen = sum(stacks.values())
        for stack, times in stacks.items():
            scaled[f"{part};{stack}" if stack else part] += cost * times / seen
        if not seen:
            scaled[part] += cost
    return dict(scaled)


def pruned(stacks: Stacks, min_share: float = MIN_SHARE) -> dict[str, float]:
    """Merge frames with a small share into their callers."""
    inclusive: defaultdict[str, float] = defaultdict(float)
    for stack, cost in stacks.items():
        frames = stack.split(";")
        for depth in range(1, len(frames) + 1):
            inclusive[";".join(frames[:depth])] += cost
    minimum = min_share * sum(stacks.values())
    kept: defaultdict[str, float] = defaultdict(float)
    for stack, cost in stacks.items():
        while inclusive[stack] < minimum and ";" in stack:
            stack = stack.rpartition(";")[0]
        kept[stack] += cost
    return dict(sorted(kept.items()))
