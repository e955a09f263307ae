"""Run ``penstock demo log`` and write its output to docs/assets/demo.svg."""

from __future__ import annotations

import asyncio
import io
import re
from contextlib import nullcontext
from pathlib import Path
from unittest import mock

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

from penstock.cli.demo.log_demo import run_log_demo
from penstock.cli.output import Output

PICTURE = Path(__file__).parents[1] / "docs/assets/demo.svg"

# The default format loads a font from another site.
_FORMAT = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL).replace(
    "Fira Code", "ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono"
)


def main() -> None:
    console = Console(
        record=True, width=104, force_terminal=True, color_system="truecolor", file=io.StringIO(), highlight=False
    )
    with (
        mock.patch.object(Output, "console", console),
        # Live tables would be recorded frame by frame.
        mock.patch("rich.live.Live", return_value=nullcontext()),
    ):
        asyncio.run(run_log_demo(Output(), events=50_000, speed=3, keep=False))
    picture = console.export_svg(title="penstock demo log", code_format=_FORMAT, unique_id="demo")
    # Hide the temporary directory of this machine.
    PICTURE.write_text(re.sub(r"[^;]*/penstock-demo-\w+", "/tmp/penstock-demo", picture))  # noqa: S108
    print(f"{PICTURE} was written")


if __name__ == "__main__":
    main()
