"""The methods of a stream that make a materialized view of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self


class ViewMethods:
    """Methods of a stream's definition. A view is planned with sqlglot, which is loaded with the first one."""

    def latest(self, *, by: str | Sequence[str], order: str = "_time") -> Self:
        """Keep the latest event of each key, as a materialized view: ``.latest(by="order_id")``.

        Args:
            by: The fields that identify what the events are about.
            order: The event with the highest value is the latest. Of several, the one that arrived last.
        """
        made: Self = self._view_builder.latest_view(self, by, order)
        return made

    def top(self, n: int, *, by: str, per: str | Sequence[str] = ()) -> Self:
        """Keep the n rows with the highest values, of all rows or of each group, as a materialized view.

        ::

            Stream.from_("sales").map("product, amount").key_by("product").aggregate({"total": "sum(amount)"}).top(
                10, by="total"
            )
        """
        made: Self = self._view_builder.top_view(self, n, by, per)
        return made

    def distinct(self) -> Self:
        """Keep one of several equal rows, as a materialized view."""
        made: Self = self._view_builder.distinct_view(self)
        return made

    def materialize(
        self,
        name: str,
        *,
        changes: str | None = None,
        indexes: Sequence[str | Sequence[str]] = (),
        state_ttl_seconds: float | None = None,
        max_state_bytes: int | None = None,
    ) -> Self:
        """Name a materialized view, which is ``penstock_live.<name>``.

        Args:
            name: The name of the view and of its query.
            changes: A queue that gets every change of the result.
            indexes: Columns, or lists of columns, of the result to index.
            state_ttl_seconds: Groups without a change for so long expire; by default never.
            max_state_bytes: The query stops before its state has more bytes; by default there is no limit.
        """
        made: Self = self._view_builder.materialize(self, name, changes, indexes, state_ttl_seconds, max_state_bytes)
        return made

    @property
    def _view_builder(self) -> Any:
        from penstock.stream.views import view_builder

        return view_builder
