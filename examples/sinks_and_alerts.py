"""Results that go to several sinks, and an alert: console, file, webhook and rules, without Spark.

    python examples/sinks_and_alerts.py

A queue has generated results of four sensors, in windows of five seconds, as a stream would emit them. Each sink reads
them as its own group: the console, a JSONL file, a webhook that fails at first, and a rule for averages above 80
degrees. The failures of the webhook do not delay the other sinks.
"""

import asyncio
import json
import logging
import random
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from penstock import Penstock
from penstock.sinks import Alerts, Backoff, Console, File, RuleStore, Sinks, Webhook
from penstock.sinks.http.signature import verify
from penstock.stream.rules import above, rule

RESULTS, ALERTS, SECRET = "example-results-5s", "example-alerts", "a secret for the example"
SENSORS = ("sensor-a", "sensor-b", "sensor-c", "sensor-d")
WINDOWS = 12


def results() -> list[dict[str, Any]]:
    """Return twelve windows of each sensor. sensor-b is too hot in three of them, from the sixth on."""
    dice, begin, windows = random.Random(6), datetime(2026, 1, 31, 12, 0, tzinfo=UTC), []
    for n in range(WINDOWS):
        for sensor in SENSORS:
            hot = 40 if sensor == "sensor-b" and n in (5, 6, 7) else 0
            values = [dice.gauss(50, 8) + hot for _ in range(60)]
            start = begin + timedelta(seconds=5 * n)
            windows.append(
                {
                    "key": sensor,
                    "window_start": start.isoformat(),
                    "window_end": (start + timedelta(seconds=5)).isoformat(),
                    "avg": round(sum(values) / len(values), 2),
                    "min": round(min(values), 2),
                    "max": round(max(values), 2),
                    "count": len(values),
                    "alerts": sum(value > 80 for value in values),
                }
            )
    return windows


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


class Receiver:
    """A webhook receiver that first responds with 503, 500 and no response, then accepts."""

    def __init__(self) -> None:
        self.failures = [b"503 Busy\r\nretry-after: 0.2", b"500 Broken", b""]
        self.received: dict[str, dict[str, Any]] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        body = await reader.readexactly(int(headers["content-length"]))
        response = self.failures.pop(0) if self.failures else b"204 No Content"
        if response.startswith(b"204") and verify(SECRET, headers, body):
            for event in json.loads(body)["events"]:
                self.received.setdefault(event["id"], event["data"])
        if response:
            writer.write(b"HTTP/1.1 " + response + b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        writer.close()


async def main() -> None:
    logging.basicConfig(format="  (%(message)s)", level=logging.INFO, stream=sys.stdout)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    pushed, receiver = results(), Receiver()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
    async with Penstock() as q, Sinks() as sinks:
        for name in (RESULTS, ALERTS):
            await q.queue(name).delete()
            await q.queue(name).create()
        await q.queue(RESULTS).push([{"key": result["key"], "data": result} for result in pushed])
        hot = rule("example-hot", on=RESULTS, value="avg", when=above(80, clear=70), alerts=ALERTS)
        await RuleStore(sinks.log).save(hot)
        with tempfile.TemporaryDirectory() as directory:
            output = Path(directory, "output.jsonl")
            webhook = Webhook(url, secret=SECRET, allow=["127.0.0.1"], backoff=Backoff(first=0.1, longest=1))
            sinks.add(RESULTS, Console(), File(output), Alerts(hot))
            sinks.add(RESULTS, webhook, group="partner", batch=10, backoff=Backoff(first=0.1, longest=1))
            await sinks.run(idle_seconds=1)
            lines = read(output)
        alerts = [event.data for event in await q.queue(ALERTS).group("on-call").batch(100).partitions(10).pop()]
        for alert in alerts:
            print(f"ALERT {alert['state']}: {alert['message']}")
        counters = sinks.counters[RESULTS, "partner"]
        await RuleStore(sinks.log).delete(hot.name)
        for name in (RESULTS, ALERTS):
            await q.queue(name).delete()
    server.close()

    def by_sensor(rows: Any) -> dict[str, list[Any]]:
        return {sensor: [row for row in rows if row["key"] == sensor] for sensor in SENSORS}

    same = by_sensor(lines) == by_sensor(receiver.received.values()) == by_sensor(pushed)
    if not same or [(a["key"], a["state"]) for a in alerts] != [("sensor-b", "firing"), ("sensor-b", "cleared")]:
        raise SystemExit(f"unexpected result: {len(lines)} lines in the file, {len(receiver.received)} at the webhook")
    print(
        f"{len(lines)} results in the file and at the webhook, in order per sensor, "
        f"after {counters.busy + counters.retries} failed attempts; one alert, which cleared."
    )


if __name__ == "__main__":
    asyncio.run(main())
