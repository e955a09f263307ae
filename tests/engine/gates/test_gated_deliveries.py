"""The recipe of the guide: a gated stream on Spark that delivers to a webhook, and a receiver that goes away."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from penstock import token_bucket_gate
from penstock.sinks import Webhook
from penstock.stream.gates import NANOS_PER_TOKEN as TOKEN
from tests.conditions import eventually
from tests.engine.gates.ideal_limiter import Grant, respects_bucket
from tests.engine.pipelines import Bench, stream


class Arrivals:
    """The events that reached the receiver, with their times and costs."""

    def __init__(self) -> None:
        #: The status of the responses.
        self.status = 204
        self.grants: dict[str, list[Grant]] = {}
        self.order: dict[str, list[int]] = {}

    def count(self) -> int:
        return sum(map(len, self.order.values()))

    @contextmanager
    def receive(self, port: int = 0) -> Iterator[int]:
        arrivals = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                (event,) = body["events"]
                cost = event["data"]["weight"] * TOKEN
                arrivals.grants.setdefault(event["key"], []).append((time.monotonic_ns() // 1000, cost))
                arrivals.order.setdefault(event["key"], []).append(event["data"]["seq"])
                self.send_response(arrivals.status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *args: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


def test_a_receiver_that_goes_away_gets_no_burst_when_it_is_back(bench: Bench) -> None:
    bench.queue("hooks.requests", "key")
    arrivals = Arrivals()
    with arrivals.receive() as port:
        pass  # the port is free again: nobody listens
    hook = Webhook(f"http://127.0.0.1:{port}/hook", batch=1, concurrency=16, allow=["127.0.0.1"])
    gate = token_bucket_gate(capacity=6, refill_per_sec=12, cost_fn="weight")
    bench.push(((f"t{t}", {"seq": i, "weight": i % 3 + 1}) for i in range(12) for t in range(3)), "hooks.requests")
    with bench.running(stream("hooks.requests").gate(gate).to("hooks.allowed", hook)):
        eventually(lambda: len(bench.events("hooks.allowed")) == 36, "the releases, while nobody listens")
        with arrivals.receive(port):
            eventually(lambda: arrivals.count() >= 36, "all deliveries")
    assert arrivals.order == {f"t{t}": list(range(12)) for t in range(3)}
    for grants in arrivals.grants.values():
        assert respects_bucket(grants, 6 * TOKEN, 12 * TOKEN)


def test_redriven_deliveries_keep_the_limit(bench: Bench) -> None:
    bench.queue("hooks.requests", "key")
    arrivals = Arrivals()
    gate = token_bucket_gate(capacity=6, refill_per_sec=12, cost_fn="weight")
    bench.push((("t", {"seq": i, "weight": i % 3 + 1}) for i in range(12)), "hooks.requests")
    with arrivals.receive() as port:
        hook = Webhook(f"http://127.0.0.1:{port}/hook", batch=1, concurrency=16, allow=["127.0.0.1"])
        made = stream("hooks.requests").gate(gate).to("hooks.allowed", hook)
        arrivals.status = 400  # the receiver refuses the event: another attempt would not help
        with bench.running(made):
            eventually(lambda: len(bench.letters("hooks.allowed")) == 12, "the dead letters")
            arrivals.status = 204
            assert bench.redrive("hooks.allowed") == 12
            eventually(lambda: arrivals.count() >= 24, "the redriven deliveries")
    assert bench.letters("hooks.allowed") == []
    assert sorted(arrivals.order["t"]) == sorted([*range(12), *range(12)])
    assert respects_bucket(arrivals.grants["t"], 6 * TOKEN, 12 * TOKEN)
