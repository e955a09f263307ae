-- name: starts
-- The queues that a query reads, where it began (null: at the beginning), and whether events since then were dropped.
SELECT k.name,
       CASE WHEN g.subscribed_from = 'beginning' THEN NULL
            WHEN g.subscribed_from IN ('now', 'end') THEN g.created_at
            ELSE g.subscribed_from::timestamptz END,
       g.subscribed_from = 'beginning' AND EXISTS (
           SELECT FROM penstock.partitions p
           WHERE p.queue_id = k.id AND coalesce((SELECT l.first_offset FROM penstock.segment_partitions l
                 WHERE l.partition_id = p.id ORDER BY l.end_offset LIMIT 1), 0) > 0
       )
FROM penstock.groups g JOIN penstock.queues k ON k.id = g.queue_id
WHERE g.query_id = %(old)s ORDER BY k.name
