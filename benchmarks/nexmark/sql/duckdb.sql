-- The answers of DuckDB over all events that a query has read.
--
-- `arrival` orders the events of a table by partition and offset. It breaks ties, as in a materialized view.

-- name: q0
SELECT auction, bidder, price, dateTime, extra FROM bid

-- name: q1
SELECT auction, bidder, CAST(0.908 * price AS decimal(23, 3)) AS price, dateTime, extra FROM bid

-- name: q2
SELECT auction, price FROM bid WHERE auction % 123 = 0

-- name: q3
SELECT p.name, p.city, p.state, a.id
FROM auction a JOIN person p ON a.seller = p.id
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')

-- name: q4
SELECT category, avg(final) AS average
FROM (
    SELECT a.id, a.category, max(b.price) AS final
    FROM auction a JOIN bid b ON a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.expires
    GROUP BY a.id, a.category
)
GROUP BY category

-- name: q5
WITH hops AS (
    SELECT auction, time_bucket(INTERVAL '2 seconds', dateTime) - hop * INTERVAL '2 seconds' AS starts
    FROM bid CROSS JOIN range(5) AS hops (hop)
),
counts AS (SELECT auction, starts, count(*) AS num FROM hops GROUP BY auction, starts)
SELECT auction, num, starts FROM counts QUALIFY num = max(num) OVER (PARTITION BY starts)

-- name: q6
WITH winners AS (
    SELECT a.id, a.seller, b.price, b.dateTime
    FROM auction a JOIN bid b ON a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.expires
    QUALIFY row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.dateTime, b.arrival) = 1
)
SELECT seller, id,
    avg(price) OVER (PARTITION BY seller ORDER BY dateTime, id ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS average
FROM winners

-- name: q7
WITH highest AS (
    SELECT max(price) AS price, time_bucket(INTERVAL '10 seconds', dateTime) + INTERVAL '10 seconds' AS ends
    FROM bid GROUP BY ends
)
SELECT b.auction, b.bidder, b.price, b.dateTime, b.extra
FROM bid b JOIN highest h ON b.price = h.price AND b.dateTime BETWEEN h.ends - INTERVAL '10 seconds' AND h.ends

-- name: q8
SELECT DISTINCT p.id, p.name, time_bucket(INTERVAL '10 seconds', p.dateTime) AS starts
FROM person p JOIN auction a
    ON p.id = a.seller
    AND time_bucket(INTERVAL '10 seconds', p.dateTime) = time_bucket(INTERVAL '10 seconds', a.dateTime)

-- name: q9
SELECT a.id, a.itemName, a.description, a.initialBid, a.reserve, a.dateTime, a.expires, a.seller, a.category, a.extra,
    b.auction, b.bidder, b.price, b.dateTime AS bid_dateTime, b.extra AS bid_extra
FROM auction a JOIN bid b ON a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.expires
QUALIFY row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.dateTime, b.arrival) = 1

-- name: q10
SELECT auction, bidder, price, dateTime, extra,
    strftime(dateTime, '%Y-%m-%d') AS dt, strftime(dateTime, '%H:%M') AS hm
FROM bid

-- name: q11
-- RANGE, since bids of one time may be in another order in each of the two window functions.
WITH gaps AS (
    SELECT bidder, dateTime,
        dateTime - lag(dateTime) OVER (PARTITION BY bidder ORDER BY dateTime) < INTERVAL '10 seconds' AS continues
    FROM bid
),
sessions AS (
    SELECT bidder, dateTime,
        count_if(continues IS NOT TRUE)
            OVER (PARTITION BY bidder ORDER BY dateTime RANGE UNBOUNDED PRECEDING) AS session
    FROM gaps
)
SELECT bidder, count(*) AS bid_count, min(dateTime) AS starts, max(dateTime) + INTERVAL '10 seconds' AS ends
FROM sessions GROUP BY bidder, session

-- name: q12
SELECT bidder, count(*) AS bid_count, time_bucket(INTERVAL '10 seconds', appended_at) AS starts,
    time_bucket(INTERVAL '10 seconds', appended_at) + INTERVAL '10 seconds' AS ends
FROM bid GROUP BY ALL

-- name: q13
SELECT b.auction, b.bidder, b.price, b.dateTime, s.value
FROM bid b JOIN side_input s ON b.auction % 10000 = s.key

-- name: q14
SELECT auction, bidder, CAST(0.908 * price AS decimal(23, 3)) AS price,
    CASE
        WHEN hour(dateTime) BETWEEN 8 AND 18 THEN 'dayTime'
        WHEN hour(dateTime) <= 6 OR hour(dateTime) >= 20 THEN 'nightTime'
        ELSE 'otherTime'
    END AS bidTimeType,
    dateTime, extra, length(extra) - length(replace(extra, 'c', '')) AS c_counts
FROM bid
WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000

-- name: q15
SELECT strftime(dateTime, '%Y-%m-%d') AS day,
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
FROM bid GROUP BY day

-- name: q16
SELECT channel, strftime(dateTime, '%Y-%m-%d') AS day,
    max(strftime(dateTime, '%H:%M')) AS minute,
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
FROM bid GROUP BY channel, day

-- name: q17
SELECT auction, strftime(dateTime, '%Y-%m-%d') AS day,
    count(*) AS total_bids,
    count(*) FILTER (WHERE price < 10000) AS rank1_bids,
    count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
    count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
    min(price) AS min_price, max(price) AS max_price, avg(price) AS avg_price,
    CAST(sum(price) AS bigint) AS sum_price
FROM bid GROUP BY auction, day

-- name: q18
SELECT auction, bidder, price, channel, url, dateTime, extra
FROM bid
QUALIFY row_number() OVER (PARTITION BY bidder, auction ORDER BY dateTime DESC, arrival) = 1

-- name: q19
SELECT auction, bidder, price, channel, url, dateTime, extra,
    row_number() OVER (PARTITION BY auction ORDER BY price DESC, arrival) AS rank_number
FROM bid
QUALIFY rank_number <= 10

-- name: q20
SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.dateTime AS bid_dateTime, b.extra AS bid_extra,
    a.itemName, a.description, a.initialBid, a.reserve, a.dateTime AS auction_dateTime, a.expires, a.seller, a.category,
    a.extra AS auction_extra
FROM bid b JOIN auction a ON b.auction = a.id
WHERE a.category = 10

-- name: q21
WITH ids AS (SELECT *, regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) AS url_id, lower(channel) AS name FROM bid)
SELECT auction, bidder, price, channel,
    CASE name WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
        ELSE url_id END AS channel_id
FROM ids
WHERE url_id <> '' OR name IN ('apple', 'google', 'facebook', 'baidu')

-- name: q22
SELECT auction, bidder, price, channel,
    split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2, split_part(url, '/', 6) AS dir3
FROM bid
