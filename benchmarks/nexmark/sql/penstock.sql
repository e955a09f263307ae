-- The Nexmark queries. Each is one statement, unbounded where Nexmark's is.

-- name: queues
CREATE QUEUE person (
    id bigint, name string, emailAddress string, creditCard string, city string, state string, dateTime timestamp,
    extra string
) WITH (partitions = 4);
CREATE QUEUE auction (
    id bigint, itemName string, description string, initialBid bigint, reserve bigint, dateTime timestamp,
    expires timestamp, seller bigint, category bigint, extra string
) WITH (partitions = 4);
CREATE QUEUE bid (
    auction bigint, bidder bigint, price bigint, channel string, url string, dateTime timestamp, extra string
) WITH (partitions = 4);

-- name: q0
-- Pass through.
INSERT INTO q0 SELECT auction, bidder, price, dateTime, extra FROM bid;

-- name: q1
-- Convert the currency.
INSERT INTO q1 SELECT auction, bidder, 0.908 * price AS price, dateTime, extra FROM bid;

-- name: q2
-- Select some auctions.
INSERT INTO q2 SELECT auction, price FROM bid WHERE auction % 123 = 0;

-- name: q3
-- Auctions of a category with their sellers in three states.
CREATE MATERIALIZED VIEW q3 AS
SELECT p.name, p.city, p.state, a.id
FROM auction a JOIN person p ON a.seller = p.id
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA');

-- name: q4
-- The mean closing price of each category.
CREATE MATERIALIZED VIEW q4 AS
SELECT category, avg(final) AS average
FROM (
    SELECT a.id, a.category, max(b.price) AS final
    FROM auction a JOIN bid b ON a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.expires
    GROUP BY a.id, a.category
)
GROUP BY category;

-- name: q5
-- The auctions with the most bids in ten seconds, every two seconds.
CREATE MATERIALIZED VIEW q5 AS
WITH counts AS (
    SELECT auction, count(*) AS num, window_start, window_end
    FROM TABLE(HOP(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
    GROUP BY auction, window_start, window_end
)
SELECT c.auction, c.num, c.window_start AS starts
FROM counts c
JOIN (SELECT max(num) AS num, window_start, window_end FROM counts GROUP BY window_start, window_end) m
    ON c.window_start = m.window_start AND c.window_end = m.window_end AND c.num >= m.num;

-- name: q6
-- The mean price of the last ten auctions of each seller.
CREATE MATERIALIZED VIEW q6 AS
WITH winners AS (
    SELECT a.id, a.seller, b.price, b.dateTime
    FROM auction a JOIN bid b ON a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.expires
    QUALIFY row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.dateTime) <= 1
)
SELECT seller, id,
    avg(price) OVER (PARTITION BY seller ORDER BY dateTime, id ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS average
FROM winners;

-- name: q7
-- The highest bids of each ten seconds.
CREATE MATERIALIZED VIEW q7 AS
SELECT b.auction, b.bidder, b.price, b.dateTime, b.extra
FROM bid b
JOIN (
    SELECT max(price) AS price, window_end
    FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '10' SECOND))
    GROUP BY window_start, window_end
) h ON b.price = h.price
WHERE b.dateTime BETWEEN h.window_end - INTERVAL '10' SECOND AND h.window_end;

-- name: q8
-- Persons who open an auction in the ten seconds of their registration.
CREATE MATERIALIZED VIEW q8 AS
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
) a ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end;

-- name: q9
-- The winning bid of each auction.
CREATE MATERIALIZED VIEW q9 AS
SELECT a.id, a.itemName, a.description, a.initialBid, a.reserve, a.dateTime, a.expires, a.seller, a.category, a.extra,
    b.auction, b.bidder, b.price, b.dateTime AS bid_dateTime, b.extra AS bid_extra
FROM auction a JOIN bid b ON a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.expires
QUALIFY row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.dateTime) <= 1;

-- name: q10
-- Log to files by day and minute.
INSERT INTO q10
SELECT auction, bidder, price, dateTime, extra,
    date_format(dateTime, 'yyyy-MM-dd') AS dt, date_format(dateTime, 'HH:mm') AS hm
FROM bid;
CREATE SINK q10_files FROM q10 TO 'parquet:{directory}';

-- name: q11
-- The bids of each session of a bidder.
CREATE QUERY q11 WITH (idle_flush_seconds = 86400, allowed_lateness_seconds = 86400) AS
INSERT INTO q11
SELECT bidder, count(*) AS bid_count, session_window.start AS starts, session_window.end AS ends
FROM bid GROUP BY bidder, session_window(dateTime, '10 seconds');

-- name: q12
-- The bids of each bidder in ten seconds of processing time: the time of the append.
CREATE QUERY q12 WITH (idle_flush_seconds = 86400) AS
INSERT INTO q12
SELECT bidder, count(*) AS bid_count, window.start AS starts, window.end AS ends
FROM bid GROUP BY bidder, window(_time, '10 seconds');

-- name: q13
-- Join with a bounded side input.
CREATE REFERENCE side_input FROM 'public.side_input';
INSERT INTO q13
SELECT b.auction, b.bidder, b.price, b.dateTime, s.value
FROM bid b JOIN side_input s ON b.auction % 10000 = s.key;

-- name: q14
-- Calculate, with a user-defined function.
CREATE FUNCTION count_char AS 'benchmarks.nexmark.functions:count_char';
INSERT INTO q14
SELECT auction, bidder, 0.908 * price AS price,
    CASE
        WHEN hour(dateTime) BETWEEN 8 AND 18 THEN 'dayTime'
        WHEN hour(dateTime) <= 6 OR hour(dateTime) >= 20 THEN 'nightTime'
        ELSE 'otherTime'
    END AS bidTimeType,
    dateTime, extra, count_char(extra, 'c') AS c_counts
FROM bid
WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000;

-- name: q15
-- Bids, bidders and auctions of each day, by price.
CREATE MATERIALIZED VIEW q15 AS
SELECT date_format(dateTime, 'yyyy-MM-dd') AS day,
    count(*) AS total_bids,
    count(*) FILTER (WHERE price < 10000) AS rank1_bids,
    count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
    count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
    count(DISTINCT bidder) AS total_bidders,
    count(DISTINCT bidder) FILTER (WHERE price < 10000) AS rank1_bidders,
    count(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bidders,
    count(DISTINCT bidder) FILTER (WHERE price >= 1000000) AS rank3_bidders,
    count(DISTINCT auction) AS total_auctions,
    count(DISTINCT auction) FILTER (WHERE price < 10000) AS rank1_auctions,
    count(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_auctions,
    count(DISTINCT auction) FILTER (WHERE price >= 1000000) AS rank3_auctions
FROM bid GROUP BY date_format(dateTime, 'yyyy-MM-dd');

-- name: q16
-- The same for each channel.
CREATE MATERIALIZED VIEW q16 AS
SELECT channel, date_format(dateTime, 'yyyy-MM-dd') AS day,
    max(date_format(dateTime, 'HH:mm')) AS minute,
    count(*) AS total_bids,
    count(*) FILTER (WHERE price < 10000) AS rank1_bids,
    count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
    count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
    count(DISTINCT bidder) AS total_bidders,
    count(DISTINCT bidder) FILTER (WHERE price < 10000) AS rank1_bidders,
    count(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bidders,
    count(DISTINCT bidder) FILTER (WHERE price >= 1000000) AS rank3_bidders,
    count(DISTINCT auction) AS total_auctions,
    count(DISTINCT auction) FILTER (WHERE price < 10000) AS rank1_auctions,
    count(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_auctions,
    count(DISTINCT auction) FILTER (WHERE price >= 1000000) AS rank3_auctions
FROM bid GROUP BY channel, date_format(dateTime, 'yyyy-MM-dd');

-- name: q17
-- Bids and prices of each auction and day.
CREATE MATERIALIZED VIEW q17 AS
SELECT auction, date_format(dateTime, 'yyyy-MM-dd') AS day,
    count(*) AS total_bids,
    count(*) FILTER (WHERE price < 10000) AS rank1_bids,
    count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
    count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
    min(price) AS min_price, max(price) AS max_price, avg(price) AS avg_price, sum(price) AS sum_price
FROM bid GROUP BY auction, date_format(dateTime, 'yyyy-MM-dd');

-- name: q18
-- The last bid of each bidder for each auction.
CREATE MATERIALIZED VIEW q18 AS
SELECT auction, bidder, price, channel, url, dateTime, extra
FROM (SELECT *, row_number() OVER (PARTITION BY bidder, auction ORDER BY dateTime DESC) AS rank_number FROM bid)
WHERE rank_number <= 1;

-- name: q19
-- The ten highest bids of each auction.
CREATE MATERIALIZED VIEW q19 AS
SELECT auction, bidder, price, channel, url, dateTime, extra, rank_number
FROM (SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC) AS rank_number FROM bid)
WHERE rank_number <= 10;

-- name: q20
-- Bids with their auction, of one category.
CREATE MATERIALIZED VIEW q20 AS
SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.dateTime AS bid_dateTime, b.extra AS bid_extra,
    a.itemName, a.description, a.initialBid, a.reserve, a.dateTime AS auction_dateTime, a.expires, a.seller, a.category,
    a.extra AS auction_extra
FROM bid b JOIN auction a ON b.auction = a.id
WHERE a.category = 10;

-- name: q21
-- Find the id of the channel.
INSERT INTO q21
SELECT auction, bidder, price, channel,
    CASE
        WHEN lower(channel) = 'apple' THEN '0'
        WHEN lower(channel) = 'google' THEN '1'
        WHEN lower(channel) = 'facebook' THEN '2'
        WHEN lower(channel) = 'baidu' THEN '3'
        ELSE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2)
    END AS channel_id
FROM bid
WHERE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) <> '' OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu');

-- name: q22
-- Split the URL.
INSERT INTO q22
SELECT auction, bidder, price, channel,
    split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2, split_part(url, '/', 6) AS dir3
FROM bid;
