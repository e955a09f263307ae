-- name: idle_cursors
-- Cursors to park: drained, not leased, and idle for a while.
SELECT c.group_id, c.partition_id
FROM penstock.cursors c
JOIN penstock.groups g ON g.id = c.group_id
JOIN penstock.partitions t ON t.id = c.partition_id
CROSS JOIN LATERAL penstock.current_position(c.group_id, c.partition_id) p
WHERE g.queue_id = %(queue)s AND c.state = 0
  AND p.available_at <= clock_timestamp() + %(skew)s
  AND coalesce(p.moved_at, 'epoch') < clock_timestamp() + %(skew)s - make_interval(secs => %(seconds)s)
  AND p.next_offset >= coalesce(
      (SELECT k.end_offset FROM {chunks} k
       WHERE k.partition_id = c.partition_id ORDER BY k.end_offset DESC LIMIT 1), t.sealed_end)
LIMIT 10000

-- name: try_lock_cursors
SELECT c.group_id, c.partition_id FROM penstock.cursors c
JOIN unnest(%(groups)s::integer[], %(partitions)s::bigint[]) AS w (group_id, partition_id)
    ON w.group_id = c.group_id AND w.partition_id = c.partition_id
ORDER BY c.group_id, c.partition_id
FOR NO KEY UPDATE OF c SKIP LOCKED

-- name: try_lock_partitions
SELECT id FROM penstock.partitions WHERE id = ANY(%(partitions)s) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED

-- name: park
-- The cursors and partitions are locked, so no push or seek is running that could miss the new state.
UPDATE penstock.cursors c SET state = 1
FROM unnest(%(groups)s::integer[], %(partitions)s::bigint[]) AS w (group_id, partition_id)
CROSS JOIN LATERAL penstock.current_position(w.group_id, w.partition_id) p
JOIN penstock.partitions t ON t.id = w.partition_id
WHERE c.group_id = w.group_id AND c.partition_id = w.partition_id AND c.state = 0
  AND EXISTS (SELECT FROM penstock.queues q WHERE q.id = {queue} AND q.segment = {segment})
  AND p.next_offset >= coalesce(
      (SELECT k.end_offset FROM {chunks} k
       WHERE k.partition_id = w.partition_id ORDER BY k.end_offset DESC LIMIT 1), t.sealed_end)
