"""``python -m benchmarks http_client``: CPU time of a push over HTTP in the client, by HTTP library."""

from __future__ import annotations

import argparse
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from statistics import median
from typing import Any
from uuid import uuid4

import aiohttp
import httpx
import msgspec

from benchmarks.ingest.bench import http_server
from benchmarks.log import server
from benchmarks.log.checks import Checks
from benchmarks.runner import check_results, describe_run, parser, run_benchmark
from penstock import Penstock
from penstock.client.http.connection import ConnectionPool

BATCHES = (1, 100)
_TIMEOUT_SECONDS = 45.0
_HEADERS = {"User-Agent": "penstock", "Accept": "application/json", "Content-Type": "application/json"}

#: Sends the body as a push under an idempotency key and returns the status and the content of the response.
Post = Callable[[bytes, str], Awaitable[tuple[int, bytes]]]


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of a run: pushes of a round, and rounds after the warm-up."""

    pushes: int
    rounds: int


FULL = Plan(pushes=1_000, rounds=7)
QUICK = Plan(pushes=100, rounds=2)


def run(arguments: Sequence[str]) -> int:
    """Run the benchmark. Return 0 if every check passed."""
    options = parser("http_client", "Compare the HTTP client with httpx and aiohttp.")
    return run_benchmark("http_client", _measure, options.parse_args(arguments))


async def _measure(options: argparse.Namespace) -> dict[str, Any]:
    plan, checks = QUICK if options.quick else FULL, Checks()
    work = (
        f"One process pushes batches of {' and '.join(map(str, BATCHES))} events to one server over loopback, one "
        f"push at a time on one open connection: {plan.rounds} rounds of {plan.pushes:,} pushes after a warm-up "
        "round, alternating between the libraries. The figure is the CPU time of the client process per push, the "
        "median of the rounds. All libraries send the same bytes and read the whole response; client_push is "
        "Penstock.push()."
    )
    with server.running() as running:
        result = describe_run(work, running)
        async with Penstock(running.url) as database, AsyncExitStack() as stack:
            url, _ = stack.enter_context(http_server(running.url, 1))
            posts = {
                "penstock": _penstock_post(url),
                "httpx": await _httpx_post(url, stack),
                "aiohttp": await _aiohttp_post(url, stack),
            }
            client = await stack.enter_async_context(Penstock(url))
            cpu = {}
            for batch in BATCHES:
                queue = f"pushed-{batch}"
                await database.queue(queue).config(dedup_window_seconds=0, max_depth_events=None).create("hash", 1)
                cpu[str(batch)] = await _measure_batch(client, queue, batch, posts, plan, checks)
                pushed = (plan.rounds + 1) * plan.pushes * (len(posts) + 1) * batch
                stored = (await database.queue(queue).describe()).size.events
                checks.expect(f"batches of {batch}: every push is stored once", stored == pushed, f"{stored:,}")
    ratios = {
        batch: {name: round(costs[name] / costs["penstock"], 2) for name in ("httpx", "aiohttp")}
        for batch, costs in cpu.items()
    }
    return result | {"cpu_ms_per_push": cpu, "ratio_to_penstock": ratios, **check_results(checks)}


async def _measure_batch(
    client: Penstock, queue: str, batch: int, posts: dict[str, Post], plan: Plan, checks: Checks
) -> dict[str, float]:
    events = [{"data": {"n": n, "sensor": "boiler", "value": 61.2}} for n in range(batch)]
    body = msgspec.json.encode({"batches": [{"queue": queue, "events": events}]})

    def push_with(post: Post) -> Callable[[], Awaitable[bool]]:
        async def push() -> bool:
            status, content = await post(body, str(uuid4()))
            return status == 200 and b'"results"' in content

        return push

    async def push_with_client() -> bool:
        return (await client.queue(queue).push(events)).accepted == batch

    pushes = {name: push_with(post) for name, post in posts.items()} | {"client_push": push_with_client}
    cpu: dict[str, list[float]] = {name: [] for name in pushes}
    for round_number in range(plan.rounds + 1):
        for name, push in pushes.items():
            accepted, begun = 0, time.process_time()
            for _ in range(plan.pushes):
                accepted += await push()
            spent = (time.process_time() - begun) / plan.pushes * 1000
            checks.expect(f"batches of {batch}: the server accepts every push", accepted == plan.pushes)
            print(f"  {batch:>3} events  {name:<12} {spent:.3f} ms{'' if round_number else '  (warm-up)'}", flush=True)
            if round_number:
                cpu[name].append(spent)
    return {name: round(median(rounds), 3) for name, rounds in cpu.items()}


def _penstock_post(url: str) -> Post:
    pool = ConnectionPool(url, ssl.create_default_context(), None, 10.0)

    async def post(body: bytes, key: str) -> tuple[int, bytes]:
        headers = {**_HEADERS, "Idempotency-Key": key}
        response = await pool.request("POST", "/v1/push", headers, body, _TIMEOUT_SECONDS)
        return response.status, response.content

    return post


async def _httpx_post(url: str, stack: AsyncExitStack) -> Post:
    client = await stack.enter_async_context(httpx.AsyncClient(base_url=url, headers=_HEADERS, trust_env=False))

    async def post(body: bytes, key: str) -> tuple[int, bytes]:
        response = await client.post(
            "/v1/push", content=body, headers={"Idempotency-Key": key}, timeout=_TIMEOUT_SECONDS
        )
        return response.status_code, response.content

    return post


async def _aiohttp_post(url: str, stack: AsyncExitStack) -> Post:
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_SECONDS)
    session = await stack.enter_async_context(aiohttp.ClientSession(url, headers=_HEADERS, timeout=timeout))

    async def post(body: bytes, key: str) -> tuple[int, bytes]:
        async with session.post("/v1/push", data=body, headers={"Idempotency-Key": key}) as response:
            return response.status, await response.read()

    return post
