-- Nexmark's queries 0 to 5, 7, 8, 11 and 12 as one application.
--
-- Queries that are unbounded in Nexmark are bounded in time here, because their state would grow without limit: the
-- joins of 3 and 4 match events within a day, and 4 emits the mean of each minute instead of a running mean.

CREATE QUEUE person (id bigint, name string, city string, state string, dateTime string) WITH (partitions = 2);
CREATE QUEUE auction (id bigint, reserve bigint, dateTime string, expires string, seller bigint, category bigint)
    WITH (partitions = 2);
CREATE QUEUE bid (auction bigint, bidder bigint, price bigint, dateTime string) WITH (partitions = 4);

-- 0: pass-through.
INSERT INTO q0 SELECT auction, bidder, price, dateTime FROM bid;

-- 1: prices in another currency.
INSERT INTO q1 SELECT auction, bidder, 0.908 * price AS price, dateTime FROM bid;

-- 2: bids for some auctions.
INSERT INTO q2 SELECT auction, price FROM bid WHERE auction % 123 = 0;

-- 3: sellers in category 10 in three states.
CREATE QUERY q3 WITH (idle_flush_seconds = 86400) AS
INSERT INTO q3
SELECT p.name, p.city, p.state, a.id
FROM auction a JOIN person p ON a.seller = p.id
    AND p.dateTime BETWEEN a.dateTime - INTERVAL '1 day' AND a.dateTime + INTERVAL '1 day'
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA');

-- 4: the mean of the closing prices of each category, for the auctions that closed in a minute.
CREATE QUERY q4_bids WITH (idle_flush_seconds = 86400) AS
INSERT INTO q4_bids
SELECT a.id, a.category, a.expires, b.price
FROM auction a JOIN bid b ON a.id = b.auction
    AND b.dateTime BETWEEN a.dateTime AND a.dateTime + INTERVAL '1 day'
WHERE b.dateTime <= a.expires;

CREATE QUERY q4_closing WITH (idle_flush_seconds = 86400, allowed_lateness_seconds = 86400) AS
INSERT INTO q4_closing
SELECT id, category, max(price) AS final, window.end AS closed
FROM q4_bids GROUP BY id, category, window(expires, '10 seconds');

CREATE QUERY q4 WITH (idle_flush_seconds = 86400, allowed_lateness_seconds = 86400) AS
INSERT INTO q4
SELECT category, avg(final) AS average, window.start AS minute
FROM q4_closing GROUP BY category, window(closed, '1 minute');

-- 5: the auctions with the most bids, in ten seconds, every two seconds.
CREATE QUERY q5_counts WITH (idle_flush_seconds = 86400, allowed_lateness_seconds = 60) AS
INSERT INTO q5_counts
SELECT auction, count(*) AS num, window.end AS ends
FROM bid GROUP BY auction, window(dateTime, '10 seconds', '2 seconds');

CREATE QUERY q5_most WITH (idle_flush_seconds = 86400, allowed_lateness_seconds = 86400) AS
INSERT INTO q5_most SELECT max(num) AS num, window.start AS ends FROM q5_counts GROUP BY window(ends, '2 seconds');

CREATE QUERY q5 WITH (idle_flush_seconds = 86400, allowed_lateness_seconds = 86400) AS
INSERT INTO q5
SELECT c.auction, c.num, c.ends
FROM q5_counts c JOIN q5_most m ON c.num = m.num AND c.ends = m.ends AND m.ends BETWEEN c.ends AND c.ends;

-- 7: the highest bids of each ten seconds.
CREATE QUERY q7_most WITH (idle_flush_seconds = 86400, allowed_lateness_seconds = 60) AS
INSERT INTO q7_most SELECT max(price) AS price, window.end AS ends FROM bid GROUP BY window(dateTime, '10 seconds');

CREATE QUERY q7 WITH (idle_flush_seconds = 86400, allowed_lateness_seconds = 86400) AS
INSERT INTO q7
SELECT b.auction, b.price, b.bidder, b.dateTime
FROM bid b JOIN q7_most m ON b.price = m.price
    AND b.dateTime >= m.ends - INTERVAL '10 seconds' AND b.dateTime < m.ends;

-- 8: persons who open an auction in the ten-second window of their registration.
CREATE QUERY q8_persons WITH (idle_flush_seconds = 86400, allowed_lateness_seconds = 60) AS
INSERT INTO q8_persons SELECT id, name, window.start AS starts FROM person GROUP BY id, name, window(dateTime, '10 seconds');

CREATE QUERY q8_sellers WITH (idle_flush_seconds = 86400, allowed_lateness_seconds = 60) AS
INSERT INTO q8_sellers SELECT seller, window.start AS starts FROM auction GROUP BY seller, window(dateTime, '10 seconds');

CREATE QUERY q8 WITH (idle_flush_seconds = 86400, allowed_lateness_seconds = 86400) AS
INSERT INTO q8
SELECT p.id, p.name, p.starts
FROM q8_persons p JOIN q8_sellers s ON p.id = s.seller AND p.starts = s.starts
    AND s.starts BETWEEN p.starts AND p.starts;

-- 11: bids of a bidder per session.
CREATE QUERY q11 WITH (idle_flush_seconds = 86400, allowed_lateness_seconds = 60) AS
INSERT INTO q11
SELECT bidder, count(*) AS bid_count, session_window.start AS starts, session_window.end AS ends
FROM bid GROUP BY bidder, session_window(dateTime, '10 seconds');

-- 12: bids of a bidder per ten seconds of processing time (the append time in the log).
CREATE QUERY q12 WITH (idle_flush_seconds = 86400) AS
INSERT INTO q12
SELECT bidder, count(*) AS bid_count, window.start AS starts, window.end AS ends
FROM bid GROUP BY bidder, window(_appended_at, '10 seconds');
