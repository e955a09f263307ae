-- name: add
WITH made AS (
    INSERT INTO penstock.traces (partition_id, event_offset, event_id, group_name, kind, data, names)
    VALUES (%(partition)s, %(offset)s, %(event)s, %(group)s, %(kind)s, %(data)s, %(names)s)
    RETURNING id
),
named AS (
    INSERT INTO penstock.trace_names (name, trace_id)
    SELECT DISTINCT n, made.id FROM made CROSS JOIN unnest(%(names)s::text[]) AS n
)
SELECT id::text AS trace_id FROM made

-- name: of_event
SELECT t.id::text AS id, t.kind AS event_type, t.data, t.group_name AS consumer_group, NULL::text AS worker_id,
       t.created_at, t.names AS trace_names
FROM penstock.traces t
WHERE t.partition_id = %(partition)s AND t.event_id = %(event)s ORDER BY t.id

-- name: by_name
SELECT t.id::text AS id, t.kind AS event_type, t.data, t.group_name AS consumer_group, NULL::text AS worker_id,
       t.created_at, t.names AS trace_names, q.name AS queue_name, p.name AS partition_name,
       t.partition_id::text AS partition_id, t.event_id AS transaction_id
FROM penstock.trace_names n
JOIN penstock.traces t ON t.id = n.trace_id
JOIN penstock.partitions p ON p.id = t.partition_id
JOIN penstock.queues q ON q.id = p.queue_id
WHERE n.name = %(name)s ORDER BY t.id LIMIT %(limit)s OFFSET %(offset)s

-- name: count_by_name
SELECT count(*) AS total FROM penstock.trace_names WHERE name = %(name)s

-- name: names
SELECT n.name AS trace_name, count(*) AS trace_count, count(DISTINCT (t.partition_id, t.event_id)) AS message_count,
       max(t.created_at) AS last_seen
FROM penstock.trace_names n JOIN penstock.traces t ON t.id = n.trace_id
GROUP BY n.name ORDER BY max(t.created_at) DESC, n.name LIMIT %(limit)s OFFSET %(offset)s

-- name: count_names
SELECT count(DISTINCT name) AS total FROM penstock.trace_names
