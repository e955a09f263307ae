-- The queries in Flink SQL. Query 6 is missing: Flink 2.3 orders a bounded OVER frame only by a time attribute, which the
-- winning bids, an updated result, do not have.
--
-- The watermark delay exceeds the span of the events: files are read in any order, and no event may be late.

-- name: person
CREATE TEMPORARY TABLE person (
    id BIGINT, name STRING, emailAddress STRING, creditCard STRING, city STRING, state STRING,
    `dateTime` TIMESTAMP_LTZ(3), extra STRING,
    WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '1' DAY
) WITH (
    'connector' = 'filesystem', 'path' = '{directory}/person', 'format' = 'json',
    'json.timestamp-format.standard' = 'ISO-8601'
)

-- name: auction
CREATE TEMPORARY TABLE auction (
    id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT, `dateTime` TIMESTAMP_LTZ(3),
    expires TIMESTAMP_LTZ(3), seller BIGINT, category BIGINT, extra STRING,
    WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '1' DAY
) WITH (
    'connector' = 'filesystem', 'path' = '{directory}/auction', 'format' = 'json',
    'json.timestamp-format.standard' = 'ISO-8601'
)

-- name: bid
CREATE TEMPORARY TABLE bid (
    auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, `dateTime` TIMESTAMP_LTZ(3), extra STRING,
    WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '1' DAY
) WITH (
    'connector' = 'filesystem', 'path' = '{directory}/bid', 'format' = 'json',
    'json.timestamp-format.standard' = 'ISO-8601'
)

-- name: side_input
CREATE TEMPORARY TABLE side_input (
    key BIGINT, `value` STRING, PRIMARY KEY (key) NOT ENFORCED
) WITH ('connector' = 'filesystem', 'path' = '{directory}/side_input', 'format' = 'csv')

-- name: count_char
CREATE TEMPORARY FUNCTION count_char AS 'benchmarks.peers.flink_functions.count_char' LANGUAGE PYTHON

-- name: q0
SELECT auction, bidder, price, `dateTime`, extra FROM bid

-- name: q1
SELECT auction, bidder, 0.908 * price AS price, `dateTime`, extra FROM bid

-- name: q2
SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0

-- name: q3
SELECT p.name, p.city, p.state, a.id
FROM auction a JOIN person p ON a.seller = p.id
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')

-- name: q4
SELECT category, AVG(CAST(final AS DOUBLE)) AS average
FROM (
    SELECT a.id, a.category, MAX(b.price) AS final
    FROM auction a JOIN bid b ON a.id = b.auction AND b.`dateTime` BETWEEN a.`dateTime` AND a.expires
    GROUP BY a.id, a.category
)
GROUP BY category

-- name: q5
SELECT c.auction, c.num, CAST(c.window_start AS TIMESTAMP_LTZ(3)) AS starts
FROM (
    SELECT auction, COUNT(*) AS num, window_start, window_end
    FROM TABLE(HOP(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
    GROUP BY auction, window_start, window_end
) c
JOIN (
    SELECT MAX(num) AS num, window_start, window_end
    FROM (
        SELECT auction, COUNT(*) AS num, window_start, window_end
        FROM TABLE(HOP(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
        GROUP BY auction, window_start, window_end
    )
    GROUP BY window_start, window_end
) m ON c.window_start = m.window_start AND c.window_end = m.window_end AND c.num >= m.num

-- name: q7
SELECT b.auction, b.bidder, b.price, b.`dateTime`, b.extra
FROM bid b
JOIN (
    SELECT MAX(price) AS price, window_end
    FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
    GROUP BY window_start, window_end
) h ON b.price = h.price
WHERE b.`dateTime` BETWEEN h.window_end - INTERVAL '10' SECOND AND h.window_end

-- name: q8
SELECT p.id, p.name, CAST(p.window_start AS TIMESTAMP_LTZ(3)) AS starts
FROM (
    SELECT id, name, window_start, window_end
    FROM TABLE(TUMBLE(TABLE person, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
    GROUP BY id, name, window_start, window_end
) p
JOIN (
    SELECT seller, window_start, window_end
    FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
    GROUP BY seller, window_start, window_end
) a ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end

-- name: q9
SELECT id, itemName, description, initialBid, reserve, CAST(`dateTime` AS TIMESTAMP_LTZ(3)) AS `dateTime`, expires,
    seller, category, extra, auction, bidder, price, CAST(bid_dateTime AS TIMESTAMP_LTZ(3)) AS bid_dateTime, bid_extra
FROM (
    SELECT a.*, b.auction, b.bidder, b.price, b.`dateTime` AS bid_dateTime, b.extra AS bid_extra,
        ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.`dateTime`) AS rank_number
    FROM auction a JOIN bid b ON a.id = b.auction AND b.`dateTime` BETWEEN a.`dateTime` AND a.expires
)
WHERE rank_number <= 1

-- name: q10
SELECT auction, bidder, price, `dateTime`, extra,
    DATE_FORMAT(`dateTime`, 'yyyy-MM-dd') AS dt, DATE_FORMAT(`dateTime`, 'HH:mm') AS hm
FROM bid

-- name: q11
SELECT bidder, COUNT(*) AS bid_count, CAST(window_start AS TIMESTAMP_LTZ(3)) AS starts,
    CAST(window_end AS TIMESTAMP_LTZ(3)) AS ends
FROM TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
GROUP BY bidder, window_start, window_end

-- name: q12
-- TUMBLE over PROCTIME() emits nothing for the last window of a bounded input.
SELECT bidder, COUNT(*) AS bid_count, TO_TIMESTAMP_LTZ(10 * tick, 0) AS starts,
    TO_TIMESTAMP_LTZ(10 * tick + 10, 0) AS ends
FROM (SELECT bidder, UNIX_TIMESTAMP() / 10 AS tick FROM bid)
GROUP BY bidder, tick

-- name: q13
SELECT b.auction, b.bidder, b.price, b.`dateTime`, s.`value`
FROM bid b JOIN side_input s ON MOD(b.auction, 10000) = s.key

-- name: q14
SELECT auction, bidder, 0.908 * price AS price,
    CASE
        WHEN HOUR(`dateTime`) BETWEEN 8 AND 18 THEN 'dayTime'
        WHEN HOUR(`dateTime`) <= 6 OR HOUR(`dateTime`) >= 20 THEN 'nightTime'
        ELSE 'otherTime'
    END AS bidTimeType,
    `dateTime`, extra, count_char(extra, 'c') AS c_counts
FROM bid
WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000

-- name: q15
SELECT DATE_FORMAT(`dateTime`, 'yyyy-MM-dd') AS `day`,
    COUNT(*) AS total_bids,
    COUNT(*) FILTER (WHERE price < 10000) AS rank1_bids,
    COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
    COUNT(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
    COUNT(DISTINCT bidder) AS total_bidders,
    COUNT(DISTINCT bidder) FILTER (WHERE price < 10000) AS rank1_bidders,
    COUNT(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bidders,
    COUNT(DISTINCT bidder) FILTER (WHERE price >= 1000000) AS rank3_bidders,
    COUNT(DISTINCT auction) AS total_auctions,
    COUNT(DISTINCT auction) FILTER (WHERE price < 10000) AS rank1_auctions,
    COUNT(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_auctions,
    COUNT(DISTINCT auction) FILTER (WHERE price >= 1000000) AS rank3_auctions
FROM bid GROUP BY DATE_FORMAT(`dateTime`, 'yyyy-MM-dd')

-- name: q16
SELECT channel, DATE_FORMAT(`dateTime`, 'yyyy-MM-dd') AS `day`,
    MAX(DATE_FORMAT(`dateTime`, 'HH:mm')) AS `minute`,
    COUNT(*) AS total_bids,
    COUNT(*) FILTER (WHERE price < 10000) AS rank1_bids,
    COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
    COUNT(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
    COUNT(DISTINCT bidder) AS total_bidders,
    COUNT(DISTINCT bidder) FILTER (WHERE price < 10000) AS rank1_bidders,
    COUNT(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bidders,
    COUNT(DISTINCT bidder) FILTER (WHERE price >= 1000000) AS rank3_bidders,
    COUNT(DISTINCT auction) AS total_auctions,
    COUNT(DISTINCT auction) FILTER (WHERE price < 10000) AS rank1_auctions,
    COUNT(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_auctions,
    COUNT(DISTINCT auction) FILTER (WHERE price >= 1000000) AS rank3_auctions
FROM bid GROUP BY channel, DATE_FORMAT(`dateTime`, 'yyyy-MM-dd')

-- name: q17
SELECT auction, DATE_FORMAT(`dateTime`, 'yyyy-MM-dd') AS `day`,
    COUNT(*) AS total_bids,
    COUNT(*) FILTER (WHERE price < 10000) AS rank1_bids,
    COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
    COUNT(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
    MIN(price) AS min_price, MAX(price) AS max_price, AVG(CAST(price AS DOUBLE)) AS avg_price, SUM(price) AS sum_price
FROM bid GROUP BY auction, DATE_FORMAT(`dateTime`, 'yyyy-MM-dd')

-- name: q18
SELECT auction, bidder, price, channel, url, `dateTime`, extra
FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY `dateTime` DESC) AS rank_number FROM bid)
WHERE rank_number <= 1

-- name: q19
SELECT auction, bidder, price, channel, url, `dateTime`, extra, rank_number
FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS rank_number FROM bid)
WHERE rank_number <= 10

-- name: q20
SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.`dateTime` AS bid_dateTime, b.extra AS bid_extra,
    a.itemName, a.description, a.initialBid, a.reserve, a.`dateTime` AS auction_dateTime, a.expires, a.seller, a.category,
    a.extra AS auction_extra
FROM bid b JOIN auction a ON b.auction = a.id
WHERE a.category = 10

-- name: q21
SELECT auction, bidder, price, channel,
    CASE
        WHEN LOWER(channel) = 'apple' THEN '0'
        WHEN LOWER(channel) = 'google' THEN '1'
        WHEN LOWER(channel) = 'facebook' THEN '2'
        WHEN LOWER(channel) = 'baidu' THEN '3'
        ELSE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2)
    END AS channel_id
FROM bid
WHERE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2) IS NOT NULL
    OR LOWER(channel) IN ('apple', 'google', 'facebook', 'baidu')

-- name: q22
SELECT auction, bidder, price, channel,
    SPLIT_INDEX(url, '/', 3) AS dir1, SPLIT_INDEX(url, '/', 4) AS dir2, SPLIT_INDEX(url, '/', 5) AS dir3
FROM bid
