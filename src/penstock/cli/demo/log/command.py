"""The command ``penstock demo log``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from penstock.cli.demo.log.story import BILLING, QUEUE, LogDemoResult, play
from penstock.cli.demo.screen import LiveScreen, PlainScreen, Screen

if TYPE_CHECKING:
    from penstock.cli.output import Output


async def run_demo(out: Output, *, events: int, speed: float, keep: bool) -> bool:
    """Play the demonstration and show how it ended; False if something did not add up."""
    screen = _screen(out)
    try:
        outcome = await play(screen, events=events, speed=speed, keep=keep)
    except TimeoutError:
        out.error("the demonstration took far longer than it should and was given up")
        return False
    if out.json:
        out.document(_document(outcome))
    else:
        _show(out, screen, outcome)
    return outcome.succeeded


def _screen(out: Output) -> Screen:
    if out.json or out.quiet:
        return Screen()
    return LiveScreen(out.console) if out.is_terminal else PlainScreen(out.console)


def _show(out: Output, screen: Screen, outcome: LogDemoResult) -> None:
    rows = [(check.what, check.expected, check.found, "yes" if check.holds else "NO") for check in outcome.checks]
    out.table(("check", "expected", "found", "holds"), rows, title="Did it add up?", right=("expected", "found"))
    if not outcome.succeeded:
        out.error("something did not add up: see the lines that say NO")
        return
    screen.words(f"It did, to the penny, in {outcome.seconds:.0f} seconds: nothing lost, nothing twice.")
    screen.words("")
    if outcome.data_dir is None:
        screen.words("To look around in it, run it again and keep it: penstock demo log --keep")
        screen.words("To begin with a queue of your own:")
        at = ""
    else:
        screen.words(f"It is kept in {outcome.data_dir}, until you delete that directory. Look around:")
        at = f" --data-dir {outcome.data_dir}"
        screen.words(f"  penstock queue show {QUEUE}{at}")
        screen.words(f"  penstock group list{at}")
        screen.words(f"  penstock queue tail {QUEUE} -n 5{at}")
        screen.words(f"  penstock group seek {QUEUE} {BILLING} --to beginning{at}")
        screen.words("or begin with a queue of your own:")
    screen.words(f"  penstock queue create mine{at}")
    screen.words(f"""  penstock queue push mine '{{"hello": "world"}}'{at}""")
    screen.words(f"  penstock queue tail mine --follow{at}")


def _document(outcome: LogDemoResult) -> dict[str, Any]:
    return {
        "succeeded": outcome.succeeded,
        "seconds": round(outcome.seconds, 1),
        "pushed_per_second": round(outcome.pushed_per_second),
        "data_dir": None if outcome.data_dir is None else str(outcome.data_dir),
        "checks": [{**asdict(check), "holds": check.holds} for check in outcome.checks],
    }
