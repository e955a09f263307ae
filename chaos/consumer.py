"""A consumer: ``python -m chaos.consumer ORDER``. It writes events to its journal before it acknowledges them."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from chaos.http_client import NoResponse, Server
from chaos.journal import Journal

LEASE_SECONDS = 6


@dataclass(frozen=True)
class Order:
    """The queues to read, each with a group."""

    port: int
    journal: str
    groups: dict[str, str]

    def text(self) -> str:
        """Return the order as a command-line argument."""
        return json.dumps(asdict(self))


class Consumer:
    """Pops events, records them, acknowledges them, records the acks."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._journal = Journal(Path(order.journal))
        self._server = Server(order.port)

    def run(self) -> None:
        """Run until killed."""
        while True:
            for queue, group in self._order.groups.items():
                try:
                    self._turn(queue, f"/v1/queues/{queue}/groups/{group}")
                except NoResponse:
                    time.sleep(0.2)

    def _turn(self, queue: str, path: str) -> None:
        asked = {"batch": 60, "partitions": 4, "wait_seconds": 0.3, "lease_seconds": LEASE_SECONDS}
        status, answer = self._server.post(f"{path}/pop", asked)
        if status != 200:
            time.sleep(0.3)
            return
        events = answer["events"]
        if not events:
            return
        got = [
            [event["key"], event["data"]["seq"], event["partition_id"], event["offset"], event["appended_at"]]
            for event in events
        ]
        self._journal.write({"t": time.monotonic(), "queue": queue, "got": got})
        acks = [{name: event[name] for name in ("partition_id", "offset", "lease_id")} for event in events]
        status, answer = self._server.post(f"{path}/ack", {"acks": acks})
        if status != 200:
            return
        done = [
            [event["key"], event["data"]["seq"]]
            for event, result in zip(events, answer["results"], strict=True)
            if result["success"] and not result.get("noop", False)
        ]
        self._journal.write({"t": time.monotonic(), "queue": queue, "acked": done})


if __name__ == "__main__":
    Consumer(Order(**json.loads(sys.argv[1]))).run()
