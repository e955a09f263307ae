"""Rates of all cells: rounds alternate between Penstock and the peers, and the result is the median of the rounds."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from benchmarks.load.meter import Rate
from benchmarks.log.bench import Bench, CellResult
from benchmarks.log.cells import Cell
from benchmarks.log.prefilled_queues import PrefilledQueues
from benchmarks.peers.environment import PeerUnavailable
from benchmarks.peers.process import ONE_AT_A_TIME, PeerProcess

#: The peers repeat the cells of these sections.
_PEER_SECTIONS = ("push", "pop_ack")


@dataclass(slots=True)
class RateTable:
    """The rates of every cell by round."""

    rates: defaultdict[tuple[str, ...], list[float]] = field(default_factory=lambda: defaultdict(list))
    client_cpu: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    server_cpu: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    peer_bytes: dict[str, float] = field(default_factory=dict)
    #: Client and server, for pushes of 1,000 events.
    peer_cpu: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    unavailable: dict[str, str] = field(default_factory=dict)

    def result(self) -> dict[str, Any]:
        """Return the medians, and the reason of each unavailable peer."""
        result: dict[str, Any] = {}
        for path, rates in self.rates.items():
            node = result
            for name in path[:-1]:
                node = node.setdefault(name, {})
            node[path[-1]] = round(median(rates))
        for name, size in self.peer_bytes.items():
            result["peers"][name]["bytes_per_event"] = round(size, 1)
            result["peers"][name]["cpu_s_per_million"] = {"push": round(median(self.peer_cpu[name]), 2)}
        for name, reason in self.unavailable.items():
            result.setdefault("peers", {})[name] = {"unavailable": reason}
        return result

    def spread(self) -> dict[str, list[int]]:
        """Return the rates of each round, if there was more than one."""
        return {"/".join(path): [round(r) for r in rates] for path, rates in self.rates.items() if len(rates) > 1}

    def cpu_per_million(self) -> dict[str, dict[str, float]]:
        """Return the CPU seconds per million events by cell: client, server, and both."""
        costs = {}
        for name, spent in self.client_cpu.items():
            client, server = median(spent), median(self.server_cpu[name])
            costs[name] = {"client": round(client, 2), "server": round(server, 2), "both": round(client + server, 2)}
        return costs


async def run_cells(bench: Bench, cells: list[Cell], prefilled: PrefilledQueues, peers: list[PeerProcess]) -> RateTable:
    table = RateTable()
    for round_ in range(1, bench.plan.rounds + 1):
        for cell in cells:
            print(f"{cell.name}: {cell.description}" if round_ == 1 else f"{cell.name}, round {round_}", flush=True)
            with bench.checks.catching(cell.name):
                _record(table, cell, await cell.run(bench, prefilled))
            if cell.path[0] in _PEER_SECTIONS:
                for peer in peers:
                    await _run_peer(bench, table, peer, cell.path[0], int(cell.path[1]))
    return table


def _record(table: RateTable, cell: Cell, result: CellResult) -> None:
    table.rates[cell.path].append(result.rate.per_second)
    table.client_cpu[cell.name].append(result.client_cpu)
    table.server_cpu[cell.name].append(result.server_cpu)
    _print_rate("penstock", result.rate)


async def _run_peer(bench: Bench, table: RateTable, peer: PeerProcess, operation: str, batch: int) -> None:
    if peer.name in table.unavailable or (operation == "pop_ack" and batch > 1 and peer.name in ONE_AT_A_TIME):
        return
    before = bench.server.cpu_seconds()
    try:
        rate, response = await peer.run(operation, batch, bench.plan.cell_seconds)
    except PeerUnavailable as error:
        table.unavailable[peer.name] = str(error)
        print(f"  {peer.name:<9} unavailable: {error}", flush=True)
        return
    table.rates["peers", peer.name, operation, str(batch)].append(rate.per_second)
    if operation == "push" and batch == 1000:
        table.peer_bytes[peer.name] = response["bytes_per_event"]
        server = (bench.server.cpu_seconds() - before) / response["stored"]
        table.peer_cpu[peer.name].append(1e6 * (rate.cpu / rate.events + server))
    bench.checks.expect_none(f"{peer.name} {operation}_{batch}: each event once", response["problems"])
    _print_rate(peer.name, rate)


def _print_rate(system: str, rate: Rate) -> None:
    print(f"  {system:<9} {rate.per_second:>10,.0f} events/s  ({rate.events:,} in {rate.seconds:.2f} s)", flush=True)
