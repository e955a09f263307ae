"""``python -m benchmarks page``: render the page and its plots from the stored results."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.all.runs import RUNS
from benchmarks.page.markdown import page
from benchmarks.page.plots import draw
from benchmarks.page.results import DIRECTORY, read
from benchmarks.page.sections import sections


def run(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks page", description="Render the page and its plots from the stored results."
    )
    parser.add_argument(
        "--out", type=Path, default=DIRECTORY, metavar="DIRECTORY", help="directory of the results and the page"
    )
    render(parser.parse_args(arguments).out)
    return 0


def render(directory: Path) -> None:
    """Write ``index.md`` and the plots into the directory of the results."""
    results = read(directory)
    rendered = sections(results, (run.name for run in RUNS))
    if unknown := set(results) - set(rendered):
        raise SystemExit(f"{', '.join(sorted(unknown))}.json: no benchmark of that name; delete the file")
    plots = [plot for section in rendered.values() for plot in section.plots]
    for path in directory.glob("*.svg"):
        if path.stem not in {plot.name for plot in plots}:
            path.unlink()
    draw(plots, directory)
    (directory / "index.md").write_text(page(results, rendered))
    print(f"{directory / 'index.md'}: {len(rendered)} results, {len(plots)} plots")
