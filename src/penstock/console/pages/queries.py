"""The list of queries, those on Spark and those that clients compute."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.console.data.overview_history import OverviewSnapshot
from penstock.console.page import Page, View, url_for
from penstock.console.pages.query_detail import STATE_TONES, QueryDetail
from penstock.console.widgets import elements
from penstock.console.widgets.tables import DataTable, TableCell, TableColumn, number_columns
from penstock.core import formatting
from penstock.engine.client_queries import ClientQuery, list_client_queries
from penstock.server.metrics import database as database_metrics
from penstock.server.metrics.family import MetricFamily

_COLUMNS: Sequence[TableColumn | str] = (
    "Query",
    "State",
    *number_columns(
        "Events", "Lag", "Freshness", "Watermark behind", "Open windows", "Late", "Dead letters", "Failed cycles"
    ),
)
_CLIENT_COLUMNS: Sequence[TableColumn | str] = (
    "Query",
    "State",
    "Reads",
    "Writes",
    "Group",
    *number_columns("Lag"),
    "Last commit",
)
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
        "Start a stream from Python. Its query is listed here, with its results and its cycles.",
        "penstock run app.py",
        icon="account_tree",
    )
    with elements.card("Queries") as spark_card:
        spark_table = DataTable("Queries", _COLUMNS)
    with elements.card(
        "Computed by clients", hint="streams that clients run, with their state in penstock.state"
    ) as client_card:
        client_table = DataTable("Computed by clients", _CLIENT_COLUMNS)
    has_spark_queries = has_client_queries = False

    def update_visibility() -> None:
        spark_card.set_visibility(has_spark_queries)
        client_card.set_visibility(has_client_queries)
        empty.set_visibility(not has_spark_queries and not has_client_queries)

    def show_spark_queries(snapshots: Sequence[OverviewSnapshot]) -> None:
        nonlocal has_spark_queries
        snapshot = snapshots[-1]
        names = sorted(query for (query,) in snapshot.values(database_metrics.QUERY_RUNNING))
        spark_table.set([_spark_row(snapshot, name) for name in names])
        has_spark_queries = bool(names)
        update_visibility()

    def show_client_queries(queries: Sequence[ClientQuery]) -> None:
        nonlocal has_client_queries
        client_table.set([_client_row(view, query) for query in queries])
        has_client_queries = bool(queries)
        update_visibility()

    await view.poll(
        "client queries", lambda: list_client_queries(view.log), show_client_queries, seconds=_CLIENT_POLL_SECONDS
    )
    await view.poll("overview", view.console.overview_history.refresh, show_spark_queries)


def _client_row(view: View, query: ClientQuery) -> list[TableCell | str]:
    return [
        TableCell(query.name, classes="ps-strong"),
        TableCell(query.state, tone=STATE_TONES[query.state]),
        query.queue,
        query.sink or "–",
        query.group,
        formatting.compact(query.lag),
        view.times.ago(query.committed_at),
    ]


def _spark_row(snapshot: OverviewSnapshot, name: str) -> list[TableCell | str]:
    def value(family: MetricFamily) -> float | None:
        return snapshot.values(family).get((name,))

    state = "stopped"
    if value(database_metrics.QUERY_RUNNING):
        state = "paused" if value(database_metrics.QUERY_PAUSED) else "running"
    lag = sum(lag for (_, group), lag in snapshot.values(database_metrics.GROUP_LAG).items() if group == name)
    freshness = snapshot.histograms(database_metrics.FRESHNESS).get((name,))
    cycles = 0.0 if freshness is None else sum(freshness.counts)
    mean_freshness = freshness.sum / cycles if freshness is not None and cycles else None
    failed = value(database_metrics.QUERY_FAILED) or 0
    return [
        TableCell(name, href=url_for("/queries", query=name), classes="ps-strong"),
        TableCell(state, tone=STATE_TONES[state]),
        f"{formatting.rate(value(database_metrics.QUERY_THROUGHPUT))}/s",
        formatting.compact(lag),
        formatting.duration(mean_freshness),
        formatting.duration(value(database_metrics.QUERY_WATERMARK_LAG)),
        formatting.number(value(database_metrics.OPEN_WINDOWS)),
        formatting.compact(value(database_metrics.QUERY_LATE)),
        formatting.compact(value(database_metrics.QUERY_DEAD)),
        TableCell(formatting.number(failed), tone="bad" if name in snapshot.failed_queries else None),
    ]


PAGE = Page("/queries", "Queries", "account_tree", build, needs_all=True)
