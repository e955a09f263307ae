"""Running the cells: rounds over all of them, Penstock's and the peers' taking turns, the median of the rounds."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from benchmarks.load.meter import Rate
from benchmarks.log.bench import Bench, Outcome
from benchmarks.log.cells import Cell
from benchmarks.log.stocks import Stocks
from benchmarks.peers.environment import PeerUnavailable
from benchmarks.peers.process import ONE_AT_A_TIME, PeerProcess

#: After a cell of these sections, the peers do the same.
_PEERS_DO = ("push", "pop_ack")


@dataclass(slots=True)
class Table:
    """The rates of every cell, round by round."""

    rates: defaultdict[tuple[str, ...], list[float]] = field(default_factory=lambda: defaultdict(list))
    client_cpu: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    server_cpu: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    peer_bytes: dict[str, float] = field(default_factory=dict)
    #: Of a push by 1,000, client and server.
    peer_cpu: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    unavailable: dict[str, str] = field(default_factory=dict)

    def result(self) -> dict[str, Any]:
        """The medians, as they stand in the result; a peer that failed says why instead."""
        result: dict[str, Any] = {}
        for path, rates in self.rates.items():
            place = result
            for name in path[:-1]:
                place = place.setdefault(name, {})
            place[path[-1]] = round(median(rates))
        for name, said in self.peer_bytes.items():
            result["peers"][name]["bytes_per_event"] = round(said, 1)
            result["peers"][name]["cpu_s_per_million"] = {"push": round(median(self.peer_cpu[name]), 2)}
        for name, why in self.unavailable.items():
            result.setdefault("peers", {})[name] = {"unavailable": why}
        return result

    def spread(self) -> dict[str, list[int]]:
        """The rates of each round, where there was more than one."""
        return {"/".join(path): [round(r) for r in rates] for path, rates in self.rates.items() if len(rates) > 1}

    def cpu_per_million(self) -> dict[str, dict[str, float]]:
        """CPU seconds a million events, by cell: client, server, and both."""
        found = {}
        for name, spent in self.client_cpu.items():
            client, server = median(spent), median(self.server_cpu[name])
            found[name] = {"client": round(client, 2), "server": round(server, 2), "both": round(client + server, 2)}
        return found


async def run_cells(bench: Bench, cells: list[Cell], stocks: Stocks, peers: list[PeerProcess]) -> Table:
    table = Table()
    for round_ in range(1, bench.plan.rounds + 1):
        for cell in cells:
            print(f"{cell.name}: {cell.does}" if round_ == 1 else f"{cell.name}, round {round_}", flush=True)
            with bench.checks.catching(cell.name):
                _note(table, cell, await cell.run(bench, stocks))
            if cell.path[0] in _PEERS_DO:
                for peer in peers:
                    await _run_peer(bench, table, peer, cell.path[0], int(cell.path[1]))
    return table


def _note(table: Table, cell: Cell, outcome: Outcome) -> None:
    table.rates[cell.path].append(outcome.rate.per_second)
    table.client_cpu[cell.name].append(outcome.client_cpu)
    table.server_cpu[cell.name].append(outcome.server_cpu)
    _say("penstock", outcome.rate)


async def _run_peer(bench: Bench, table: Table, peer: PeerProcess, what: str, batch: int) -> None:
    if peer.name in table.unavailable or (what == "pop_ack" and batch > 1 and peer.name in ONE_AT_A_TIME):
        return
    before = bench.server.cpu_seconds()
    try:
        rate, answer = await peer.run(what, batch, bench.plan.cell_seconds)
    except PeerUnavailable as error:
        table.unavailable[peer.name] = str(error)
        print(f"  {peer.name:<9} unavailable: {error}", flush=True)
        return
    table.rates["peers", peer.name, what, str(batch)].append(rate.per_second)
    if what == "push" and batch == 1000:
        table.peer_bytes[peer.name] = answer["bytes_per_event"]
        server = (bench.server.cpu_seconds() - before) / answer["stored"]
        table.peer_cpu[peer.name].append(1e6 * (rate.cpu / rate.events + server))
    bench.checks.expect_none(f"{peer.name} {what}_{batch}: each event once", answer["problems"])
    _say(peer.name, rate)


def _say(who: str, rate: Rate) -> None:
    print(f"  {who:<9} {rate.per_second:>10,.0f} events/s  ({rate.events:,} in {rate.seconds:.2f} s)", flush=True)
