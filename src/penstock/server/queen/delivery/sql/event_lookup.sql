-- name: partition
SELECT p.id AS partition_id, q.id AS queue_id, q.name AS queue, p.name AS partition, p.epoch
FROM penstock.partitions p JOIN penstock.queues q ON q.id = p.queue_id
WHERE p.id = %(partition)s

-- name: position
SELECT p.next_offset, p.lease_end, p.lease_id FROM penstock.positions p
WHERE p.group_id = %(group)s AND p.partition_id = %(partition)s ORDER BY p.version DESC LIMIT 1

-- name: deduplicated_ids
SELECT i.hash, i.event_offset FROM {ids} i WHERE i.hash = ANY(%(hashes)s::uuid[])
