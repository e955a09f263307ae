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
SELECT id FROM made

-- name: of_event
SELECT t.id, t.kind, t.data, t.group_name, t.created_at, t.names FROM penstock.traces t
WHERE t.partition_id = %(partition)s AND t.event_id = %(event)s ORDER BY t.id

-- name: by_name
SELECT t.id, t.kind, t.data, t.group_name, t.created_at, t.names,
       q.name AS queue, p.name AS partition, t.partition_id, t.event_id
FROM penstock.trace_names n
JOIN penstock.traces t ON t.id = n.trace_id
JOIN penstock.partitions p ON p.id = t.partition_id
JOIN penstock.queues q ON q.id = p.queue_id
WHERE n.name = %(name)s ORDER BY t.id LIMIT %(limit)s OFFSET %(offset)s

-- name: count_by_name
SELECT count(*) FROM penstock.trace_names WHERE name = %(name)s

-- name: names
SELECT n.name, count(*) AS traces, count(DISTINCT (t.partition_id, t.event_id)) AS messages,
       max(t.created_at) AS last_at, count(*) OVER () AS total
FROM penstock.trace_names n JOIN penstock.traces t ON t.id = n.trace_id
GROUP BY n.name ORDER BY max(t.created_at) DESC, n.name LIMIT %(limit)s OFFSET %(offset)s
