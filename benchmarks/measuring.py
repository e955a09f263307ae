"""What all benchmarks have in common: a run that a signal ends in order, and one JSON object as the last line."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
from collections.abc import Awaitable, Callable
from typing import Any


def measured(measure: Callable[[argparse.Namespace], Awaitable[dict[str, Any]]], options: argparse.Namespace) -> int:
    """Measure, and print the result; 0 if every check held."""
    try:
        result = asyncio.run(_in_order(measure, options))
    except asyncio.CancelledError:
        return 128 + signal.SIGTERM
    text = json.dumps(result)
    if options.json is not None:
        options.json.write_text(text + "\n")
    print(text)
    return 0 if result["ok"] else 1


async def _in_order(
    measure: Callable[[argparse.Namespace], Awaitable[dict[str, Any]]], options: argparse.Namespace
) -> dict[str, Any]:
    """Let SIGTERM end the run as Ctrl-C does, so that the server is stopped and its directory removed."""
    this = asyncio.current_task()
    if this is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
    return await measure(options)
