"""The queries of Nexmark as views, and their answers in DuckDB where sqlglot does not translate the view."""

# ruff: noqa: S608 - SQL of tests

from __future__ import annotations

_RANKS = {"rank1": "price < 100", "rank2": "price >= 100 AND price < 10000", "rank3": "price >= 10000"}


def _counts(name: str, counted: str) -> str:
    filtered = [f"count({counted}) FILTER (WHERE {where}) AS {rank}_{name}" for rank, where in _RANKS.items()]
    return ", ".join([f"count({counted}) AS total_{name}", *filtered])


_STATISTICS = ", ".join(
    [_counts("bids", "*"), _counts("bidders", "DISTINCT bidder"), _counts("auctions", "DISTINCT auction")]
)
_WINNING = "FROM auction a JOIN bid b ON a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.expires"
_COUNTS_PER_WINDOW = (
    "SELECT auction, count(*) AS num, window_start, window_end FROM HOP(TABLE bid, DESCRIPTOR(dateTime), "
    "INTERVAL '2' SECOND, INTERVAL '10' SECOND) GROUP BY auction, window_start, window_end"
)

VIEWS = {
    "q0": "SELECT auction, bidder, price, dateTime, extra FROM bid",
    "q1": "SELECT auction, bidder, 0.908 * price AS price, dateTime, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    "q3": """
        SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id
        WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')
    """,
    "q4": f"""
        SELECT category, avg(final) AS average
        FROM (SELECT max(b.price) AS final, a.category {_WINNING} GROUP BY a.id, a.category)
        GROUP BY category
    """,
    "q5": f"""
        SELECT c.auction, c.num, c.window_start
        FROM ({_COUNTS_PER_WINDOW}) c
        JOIN (
            SELECT max(num) AS most, window_start, window_end FROM ({_COUNTS_PER_WINDOW})
            GROUP BY window_start, window_end
        ) m ON c.window_start = m.window_start AND c.window_end = m.window_end AND c.num >= m.most
    """,
    "q6": f"""
        SELECT seller, id, avg(price) OVER (
            PARTITION BY seller ORDER BY dateTime, id ROWS BETWEEN 9 PRECEDING AND CURRENT ROW
        ) AS average
        FROM (
            SELECT a.id, a.seller, b.price, b.dateTime {_WINNING}
            QUALIFY row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.dateTime, b.number) = 1
        )
    """,
    "q7": """
        SELECT b.auction, b.price, b.bidder, b.dateTime, b.extra
        FROM bid b
        JOIN (SELECT max(price) AS price, window.end AS ends FROM bid GROUP BY window(dateTime, '10 seconds')) h
            ON b.price = h.price AND b.dateTime BETWEEN h.ends - INTERVAL '10' SECOND AND h.ends
    """,
    "q8": """
        SELECT p.id, p.name, p.window_start AS starts
        FROM (
            SELECT id, name, window_start, window_end
            FROM TABLE(TUMBLE(TABLE person, DESCRIPTOR(dateTime), INTERVAL '10' SECOND))
            GROUP BY id, name, window_start, window_end
        ) p
        JOIN (
            SELECT seller, window_start, window_end
            FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(dateTime), INTERVAL '10' SECOND))
            GROUP BY seller, window_start, window_end
        ) a ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end
    """,
    "q9": f"""
        SELECT id, itemName, seller, category, bidder, price, bid_time
        FROM (
            SELECT a.*, b.bidder, b.price, b.dateTime AS bid_time,
                row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.dateTime, b.number) AS place
            {_WINNING}
        )
        WHERE place <= 1
    """,
    "q10": """
        SELECT auction, bidder, price, dateTime, extra,
            date_format(dateTime, 'yyyy-MM-dd') AS day, date_format(dateTime, 'HH:mm') AS minute
        FROM bid
    """,
    "q11": """
        WITH gaps AS (
            SELECT bidder, dateTime, unix_micros(dateTime)
                - unix_micros(lag(dateTime) OVER (PARTITION BY bidder ORDER BY dateTime)) < 10000000 AS continues
            FROM bid
        ),
        sessions AS (
            SELECT bidder, dateTime, sum(CASE WHEN continues THEN 0 ELSE 1 END) OVER (
                PARTITION BY bidder ORDER BY dateTime RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
            ) AS session
            FROM gaps
        )
        SELECT bidder, count(*) AS bid_count, min(dateTime) AS starts FROM sessions GROUP BY bidder, session
    """,
    "q12": """
        SELECT bidder, count(*) AS bid_count, window.start AS starts, window.end AS ends
        FROM bid GROUP BY bidder, window(_time, '10 seconds')
    """,
    "q13": "SELECT b.auction, b.bidder, b.price, s.value FROM bid b JOIN side_input s ON b.auction % 10 = s.key",
    "q14": """
        SELECT auction, bidder, 0.908 * price AS price,
            CASE
                WHEN hour(dateTime) BETWEEN 8 AND 18 THEN 'dayTime'
                WHEN hour(dateTime) <= 6 OR hour(dateTime) >= 20 THEN 'nightTime'
                ELSE 'otherTime'
            END AS bidTimeType,
            extra, length(extra) - length(replace(extra, 'c', '')) AS c_counts
        FROM bid
        WHERE 0.908 * price > 100 AND 0.908 * price < 50000
    """,
    "q15": f"SELECT date_format(dateTime, 'yyyy-MM-dd') AS day, {_STATISTICS} FROM bid GROUP BY day",
    "q16": f"""
        SELECT channel, date_format(dateTime, 'yyyy-MM-dd') AS day, max(date_format(dateTime, 'HH:mm')) AS minute,
            {_STATISTICS}
        FROM bid GROUP BY channel, date_format(dateTime, 'yyyy-MM-dd')
    """,
    "q17": f"""
        SELECT auction, date_format(dateTime, 'yyyy-MM-dd') AS day, {_counts("bids", "*")},
            min(price) AS lowest, max(price) AS highest, avg(price) AS mean, sum(price) AS total
        FROM bid GROUP BY 1, 2
    """,
    "q18": """
        SELECT auction, bidder, price, channel, dateTime FROM (
            SELECT *, row_number() OVER (PARTITION BY bidder, auction ORDER BY dateTime DESC, number) AS place FROM bid
        ) WHERE place <= 1
    """,
    "q19": """
        SELECT auction, bidder, price, place FROM (
            SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, number) AS place FROM bid
        ) WHERE place <= 10
    """,
    "q20": """
        SELECT b.auction, b.bidder, b.price, b.dateTime AS bid_time, a.itemName, a.seller, a.category
        FROM bid b JOIN auction a ON b.auction = a.id WHERE a.category = 10
    """,
    "q21": """
        SELECT auction, bidder, price, channel,
            CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2'
                WHEN 'baidu' THEN '3' ELSE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id
        FROM bid
        WHERE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) <> ''
            OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu')
    """,
    "q22": """
        SELECT auction, bidder, price, channel,
            split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2, split_part(url, '/', 6) AS dir3
        FROM bid
    """,
}

DUCKDB = {
    "q5": """
        WITH hops AS (
            SELECT auction, time_bucket(INTERVAL '2 seconds', dateTime) - hop * INTERVAL '2 seconds' AS window_start
            FROM bid CROSS JOIN range(5) AS hops (hop) WHERE dateTime IS NOT NULL
        )
        SELECT auction, count(*) AS num, window_start FROM hops GROUP BY auction, window_start
        QUALIFY num = max(num) OVER (PARTITION BY window_start)
    """,
    "q7": """
        WITH highest AS (
            SELECT max(price) AS price, time_bucket(INTERVAL '10 seconds', dateTime) AS starts
            FROM bid WHERE dateTime IS NOT NULL GROUP BY starts
        )
        SELECT b.auction, b.price, b.bidder, b.dateTime, b.extra
        FROM bid b JOIN highest h ON b.price = h.price
            AND b.dateTime BETWEEN h.starts AND h.starts + INTERVAL '10 seconds'
    """,
    "q8": """
        SELECT DISTINCT p.id, p.name, time_bucket(INTERVAL '10 seconds', p.dateTime) AS starts
        FROM person p JOIN auction a ON p.id = a.seller
            AND time_bucket(INTERVAL '10 seconds', p.dateTime) = time_bucket(INTERVAL '10 seconds', a.dateTime)
    """,
    "q12": """
        SELECT bidder, count(*) AS bid_count, time_bucket(INTERVAL '10 seconds', _time) AS starts,
            starts + INTERVAL '10 seconds' AS ends
        FROM bid GROUP BY bidder, starts
    """,
}
