"""Pushes with SQL until it is killed: ``python sql_pusher.py URL NUMBER``.

Keys ``c0`` to ``c3`` have a counter row that the transaction updates, so their order is that of the counter. Keys
``f0`` to ``f3`` have no shared row. The table ``free`` has a row for each of their committed events, with the time at
which the commit began.
"""

from __future__ import annotations

import random
import sys
import time

import psycopg

SCHEMA = """
CREATE TABLE counters (key text PRIMARY KEY, n int NOT NULL);
INSERT INTO counters SELECT 'c' || i, 0 FROM generate_series(0, 3) i;
CREATE TABLE free (id uuid PRIMARY KEY, key text, began timestamptz NOT NULL, xid xid NOT NULL);
"""
COUNT = """
WITH counted AS (UPDATE counters SET n = n + 1 WHERE key = %(key)s RETURNING n)
SELECT penstock.push('orders', to_jsonb(n), key => %(key)s) FROM counted
"""
FREE = """
WITH made AS (SELECT gen_random_uuid() AS id),
pushed AS (SELECT penstock.push_many('orders', ARRAY[to_jsonb(id)], keys => ARRAY[%(key)s]) FROM made)
INSERT INTO free SELECT id, %(key)s, clock_timestamp(), pg_current_xact_id()::xid FROM made, pushed
"""


def push(conn: psycopg.Connection, chance: random.Random) -> None:
    with conn.transaction(force_rollback=chance.random() < 0.2):
        for _ in range(chance.randint(0, 2)):
            key = f"c{chance.randrange(4)}"
            with conn.transaction(force_rollback=chance.random() < 0.2):
                conn.execute(COUNT, {"key": key})
        # The last statement, so that the commit begins at its time.
        conn.execute(FREE, {"key": f"f{chance.randrange(4)}"})


def main(url: str, number: str) -> None:
    chance = random.Random(number)
    while True:
        try:
            with psycopg.connect(url, autocommit=True) as conn:
                while True:
                    try:
                        push(conn, chance)
                    except psycopg.errors.DeadlockDetected:
                        continue
        except psycopg.Error:
            time.sleep(0.05)


if __name__ == "__main__":
    main(*sys.argv[1:])
