"""The command: the page and its plots, from the results that are there."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.all.runs import RUNS
from benchmarks.page.markdown import page
from benchmarks.page.pictures import draw
from benchmarks.page.results import DIRECTORY, read
from benchmarks.page.sections import sections


def run(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks page", description="Make the page and its plots from the results."
    )
    parser.add_argument("--out", type=Path, default=DIRECTORY, metavar="DIRECTORY", help="where results and page are")
    render(parser.parse_args(arguments).out)
    return 0


def render(directory: Path) -> None:
    """Write ``index.md`` and the plots beside the results of a directory."""
    results = read(directory)
    made = sections(results, (run.name for run in RUNS))
    if unknown := set(results) - set(made):
        raise SystemExit(f"{', '.join(sorted(unknown))}.json: no benchmark of that name; take it away")
    plots = [plot for section in made.values() for plot in section.plots]
    for picture in directory.glob("*.svg"):
        if picture.stem not in {plot.name for plot in plots}:
            picture.unlink()
    draw(plots, directory)
    (directory / "index.md").write_text(page(results, made))
    print(f"{directory / 'index.md'}: {len(made)} results, {len(plots)} plots")
