-- name: add
INSERT INTO penstock.dead_letters (queue_id, partition_id, event_offset, group_name, key, event_id, event_time,
    appended_at, headers, data, stage, error, traceback, attempts, failed_at, first_failed_at)
SELECT %(queue)s, %(partition)s, %(offset)s, %(group)s, %(key)s, %(event_id)s, %(event_time)s,
    %(appended_at)s, %(headers)s, %(data)s, %(stage)s, %(error)s, %(traceback)s, %(attempts)s, c.now, c.now
FROM (SELECT clock_timestamp() + %(skew)s AS now) c
RETURNING id

-- name: reject
-- Input of a push that is not an event. It has no offset, no key and no group.
INSERT INTO penstock.dead_letters (queue_id, partition_id, event_offset, group_name, appended_at, data, stage, error,
    attempts, failed_at, first_failed_at)
SELECT q.id, 0, 0, '', c.now, %(data)s, 'ingest', %(error)s, 1, c.now, c.now
FROM penstock.queues q, (SELECT clock_timestamp() + %(skew)s AS now) c WHERE q.id = %(queue)s

-- name: add_damaged
-- Of an event in a damaged chunk only the offset is known and, in a key partition, the key.
INSERT INTO penstock.dead_letters (queue_id, partition_id, event_offset, group_name, key, appended_at, data, stage,
    error, attempts, failed_at, first_failed_at)
SELECT p.queue_id, p.id, w.event_offset, %(group)s, CASE WHEN p.is_key_partition AND p.name <> %(no_key)s THEN p.name END,
    %(appended_at)s, 'null', %(stage)s, %(error)s, 1, c.now, c.now
FROM penstock.partitions p, unnest(%(offsets)s::bigint[]) AS w (event_offset),
    (SELECT clock_timestamp() + %(skew)s AS now) c
WHERE p.id = %(partition)s
ORDER BY w.event_offset

-- name: add_again
-- A redriven event failed again: update its dead letter and add the previous failure to the history.
UPDATE penstock.dead_letters d SET
    history = d.history || jsonb_build_array(jsonb_build_object(
        'failed_at', d.failed_at, 'error', d.error, 'attempts', d.attempts, 'stage', d.stage,
        'redriven_at', d.redriven_at)),
    redriven_at = NULL, partition_id = %(partition)s, event_offset = %(offset)s, stage = %(stage)s,
    error = %(error)s, traceback = %(traceback)s, attempts = %(attempts)s, failed_at = clock_timestamp() + %(skew)s
WHERE d.id = %(id)s AND d.queue_id = %(queue)s AND d.redriven_at IS NOT NULL
RETURNING d.id

-- name: list
-- A page of dead letters, up to max_bytes but at least one, with the number of all in the page.
SELECT s.id, q.name AS queue, p.name AS partition, s.partition_id, s.event_offset AS "offset", s.group_name AS "group",
       s.key, s.event_id, s.event_time, s.appended_at, s.headers, s.data, s.stage, s.error, s.traceback, s.attempts,
       s.failed_at, s.first_failed_at, s.redrives, s.redriven_at, s.history, s.total
FROM (
    SELECT d.*, count(*) OVER () AS total, sum(d.size) OVER page AS total_size, row_number() OVER page AS number
    FROM (
        SELECT d.*, octet_length(d.data) + octet_length(d.error) + coalesce(octet_length(d.traceback), 0)
                    + coalesce(octet_length(d.headers), 0) + octet_length(d.history::text) AS size
        FROM penstock.dead_letters d
        WHERE {conditions}
        ORDER BY CASE WHEN %(oldest_first)s THEN d.id END, d.failed_at DESC, d.id DESC
        LIMIT %(limit)s OFFSET %(offset)s
    ) d
    WINDOW page AS (ORDER BY CASE WHEN %(oldest_first)s THEN d.id END, d.failed_at DESC, d.id DESC)
) s
JOIN penstock.queues q ON q.id = s.queue_id
LEFT JOIN penstock.partitions p ON p.id = s.partition_id
WHERE s.total_size <= %(max_bytes)s::bigint OR s.number = 1
ORDER BY s.number

-- name: queues
SELECT DISTINCT q.name FROM penstock.dead_letters d JOIN penstock.queues q ON q.id = d.queue_id
WHERE {conditions}

-- name: count
SELECT count(*) FROM penstock.dead_letters d
WHERE {conditions}

-- name: ids
-- The oldest first.
SELECT d.id FROM penstock.dead_letters d WHERE {conditions} ORDER BY d.id LIMIT %(limit)s

-- name: kind
-- The kind of an error: its first line, with # in place of each number with a point or comma, and of each word of four
-- or more letters that contains a digit.
left(regexp_replace(regexp_replace(split_part(d.error, chr(10), 1), '\m[0-9]+([.,][0-9]+)+\M', '#', 'g'),
                    '\m(?=[[:alnum:]_-]{4})[[:alnum:]_-]*[0-9][[:alnum:]_-]*\M', '#', 'g'), 200)

-- name: conditions
(%(ids)s::bigint[] IS NULL OR d.id = ANY(%(ids)s::bigint[]))
  AND (%(queue)s::integer IS NULL OR d.queue_id = %(queue)s)
  AND (%(group)s::text IS NULL OR d.group_name = %(group)s)
  AND (%(key)s::text IS NULL OR d.key = %(key)s)
  AND (%(error)s::text IS NULL OR strpos(d.error, %(error)s) > 0)
  AND (%(since)s::timestamptz IS NULL OR d.failed_at >= %(since)s)
  AND (%(until)s::timestamptz IS NULL OR d.failed_at < %(until)s)
  AND (%(partition)s::text IS NULL OR EXISTS (
      SELECT FROM penstock.partitions t WHERE t.id = d.partition_id AND t.name = %(partition)s))
  AND (%(kind)s::text IS NULL OR {kind} = %(kind)s)
  AND (%(stage)s::text IS NULL OR d.stage = %(stage)s)
  AND (%(after)s::bigint IS NULL OR d.id > %(after)s)
  AND d.redriven_at IS NULL

-- name: kinds
-- Counts the newest dead letters of each queue by group, stage and kind of error.
SELECT q.name, n.group_name, n.stage, n.kind, count(*), min(n.first_failed_at), max(n.failed_at), max(n.id),
       NOT bool_or(bool_or(n.number = %(sample)s)) OVER (PARTITION BY q.name)
FROM penstock.queues q
CROSS JOIN LATERAL (
    SELECT d.id, d.group_name, d.stage, d.first_failed_at, d.failed_at, {kind} AS kind,
           row_number() OVER (ORDER BY d.id DESC) AS number
    FROM penstock.dead_letters d
    WHERE d.queue_id = q.id AND d.redriven_at IS NULL ORDER BY d.id DESC LIMIT %(sample)s
) n
WHERE %(queue)s::integer IS NULL OR q.id = %(queue)s
GROUP BY q.name, n.group_name, n.stage, n.kind
ORDER BY max(n.failed_at) DESC
LIMIT %(limit)s

-- name: claim
-- Locks the dead letters that a redrive may send: not redriven yet, and below the limit of the queue.
SELECT d.id, d.redrives FROM penstock.dead_letters d JOIN penstock.queues q ON q.id = d.queue_id
WHERE d.id = ANY(%(ids)s) AND d.redriven_at IS NULL AND d.redrives < q.max_redrives
ORDER BY d.id
FOR NO KEY UPDATE OF d SKIP LOCKED

-- name: share_groups
-- Returns the groups that exist, and keeps them from being deleted until the transaction ends.
SELECT id FROM penstock.groups WHERE id = ANY(%(groups)s) ORDER BY id FOR KEY SHARE

-- name: mark_redriven
UPDATE penstock.dead_letters SET redriven_at = clock_timestamp() + %(skew)s, redrives = redrives + 1
WHERE id = ANY(%(ids)s)

-- name: edit
-- Replaces the data of dead letters and keeps the old data in their history.
UPDATE penstock.dead_letters d SET
    data = e.data,
    history = d.history || jsonb_build_array(jsonb_build_object(
        'edited_at', clock_timestamp() + %(skew)s::interval, 'data', d.data))
FROM unnest(%(ids)s::bigint[], %(data)s::text[]) AS e (id, data)
WHERE d.id = e.id

-- name: purge
DELETE FROM penstock.dead_letters d
WHERE {conditions}

-- name: delete_redriven
DELETE FROM penstock.dead_letters WHERE redriven_at < clock_timestamp() - interval '7 days'
