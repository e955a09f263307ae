"""The list of queries, those on Spark and those that clients compute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.console.formatting import TimeFormatter
from penstock.console.page import Page, View, url_for
from penstock.console.pages.first_query import QUERY_COMMAND
from penstock.console.pages.query_detail import STATE_TONES, QueryDetail
from penstock.console.widgets import elements
from penstock.console.widgets.tables import DataTable, TableCell, TableColumn, key_cell, number_column
from penstock.core import formatting
from penstock.engine.client_queries import ClientQuery, list_client_queries
from penstock.server.metrics import database_metrics
from penstock.server.metrics.family import MetricFamily
from penstock.server.metrics.overview_snapshot import OverviewSnapshot

_CLIENT_POLL_SECONDS = 5.0


async def build(view: View) -> None:
    name = view.params.get("query")
    if name is None:
        await _build_list(view)
    else:
        await QueryDetail(view, name).build()


async def _build_list(view: View) -> None:
    empty = elements.empty_state(
        "No queries yet",
        "Start one from SQL, or from Python with penstock run. It is listed here, with its results and its cycles.",
        QUERY_COMMAND,
        icon="account_tree",
    )
    with elements.card("Queries") as spark_card:
        spark_table = DataTable("Queries", _SPARK_COLUMNS)
    with elements.card(
        "Computed by clients", hint="streams that clients run, with their state in penstock.state"
    ) as client_card:
        client_table = DataTable("Computed by clients", _client_columns(view.times))
    has_spark_queries = has_client_queries = False

    def update_visibility() -> None:
        spark_card.set_visibility(has_spark_queries)
        client_card.set_visibility(has_client_queries)
        empty.set_visibility(not has_spark_queries and not has_client_queries)

    def show_spark_queries(snapshots: Sequence[OverviewSnapshot]) -> None:
        nonlocal has_spark_queries
        snapshot = snapshots[-1]
        names = sorted(query for (query,) in snapshot.values(database_metrics.QUERY_RUNNING))
        spark_table.set([_SparkQuery(snapshot, name) for name in names])
        has_spark_queries = bool(names)
        update_visibility()

    def show_client_queries(queries: Sequence[ClientQuery]) -> None:
        nonlocal has_client_queries
        client_table.set(queries)
        has_client_queries = bool(queries)
        update_visibility()

    await view.poll(
        "client queries", lambda: list_client_queries(view.log), show_client_queries, seconds=_CLIENT_POLL_SECONDS
    )
    await view.poll("overview", view.console.overview_history.refresh, show_spark_queries)


def _client_columns(times: TimeFormatter) -> list[TableColumn[ClientQuery]]:
    return [
        TableColumn("Query", lambda query: key_cell(query.name)),
        TableColumn("State", lambda query: TableCell(query.state, tone=STATE_TONES[query.state])),
        TableColumn("Reads", lambda query: query.queue, classes="ps-desktop"),
        TableColumn("Writes", lambda query: query.sink or "–", classes="ps-desktop"),
        TableColumn("Group", lambda query: query.group, classes="ps-desktop"),
        number_column("Lag", lambda query: formatting.compact(query.lag)),
        TableColumn("Last commit", lambda query: times.ago(query.committed_at)),
    ]


@dataclass(frozen=True, slots=True)
class _SparkQuery:
    snapshot: OverviewSnapshot
    name: str

    def value(self, family: MetricFamily) -> float | None:
        return self.snapshot.values(family).get((self.name,))

    def state(self) -> TableCell:
        state = "failed" if self.name in self.snapshot.ended_queries else "stopped"
        if self.value(database_metrics.QUERY_RUNNING):
            state = "paused" if self.value(database_metrics.QUERY_PAUSED) else "running"
        return TableCell(state, tone=STATE_TONES[state])

    def lag(self) -> float:
        lags = self.snapshot.values(database_metrics.GROUP_LAG)
        return sum(lag for (_, group), lag in lags.items() if group == self.name)

    def mean_freshness(self) -> float | None:
        freshness = self.snapshot.histograms(database_metrics.FRESHNESS).get((self.name,))
        cycles = 0.0 if freshness is None else sum(freshness.counts)
        return freshness.sum / cycles if freshness is not None and cycles else None

    def failed_cycles(self) -> TableCell:
        failed = formatting.number(self.value(database_metrics.QUERY_FAILED) or 0)
        return TableCell(failed, tone="bad" if self.name in self.snapshot.failed_queries else None)


_SPARK_COLUMNS: list[TableColumn[_SparkQuery]] = [
    TableColumn(
        "Query",
        lambda query: key_cell(query.name, url_for("/queries", query=query.name)),
    ),
    TableColumn("State", _SparkQuery.state),
    number_column(
        "Events",
        lambda query: f"{formatting.rate(query.value(database_metrics.QUERY_THROUGHPUT))}/s",
        classes="ps-desktop",
    ),
    number_column("Lag", lambda query: formatting.compact(query.lag())),
    number_column("Freshness", lambda query: formatting.duration(query.mean_freshness())),
    number_column(
        "Watermark behind",
        lambda query: formatting.duration(query.value(database_metrics.QUERY_WATERMARK_LAG)),
        classes="ps-desktop",
    ),
    number_column(
        "Open windows",
        lambda query: formatting.number(query.value(database_metrics.OPEN_WINDOWS)),
        classes="ps-desktop",
    ),
    number_column(
        "Late", lambda query: formatting.compact(query.value(database_metrics.QUERY_LATE)), classes="ps-desktop"
    ),
    number_column(
        "Dead letters", lambda query: formatting.compact(query.value(database_metrics.QUERY_DEAD)), classes="ps-desktop"
    ),
    number_column("Failed cycles", _SparkQuery.failed_cycles, classes="ps-desktop"),
]

PAGE = Page("/queries", "Queries", "account_tree", build, needs_all=True)
