-- name: query
SELECT q.id, q.group_name, q.source_queue FROM penstock.client_queries q WHERE q.id = %(query)s

-- name: activity
SELECT p.lease_id IS NOT NULL AND p.available_at > clock_timestamp() AS is_leased,
       p.next_offset < coalesce(
           (SELECT k.end_offset FROM {chunks} k
            WHERE k.partition_id = t.id ORDER BY k.end_offset DESC LIMIT 1), t.sealed_end) AS has_unread
FROM penstock.groups g
JOIN penstock.partitions t ON t.queue_id = g.queue_id
CROSS JOIN LATERAL penstock.current_position(g.id, t.id) p
WHERE g.queue_id = %(queue)s AND g.name = %(group)s AND t.id = %(partition)s
