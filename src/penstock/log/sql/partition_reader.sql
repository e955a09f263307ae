-- name: partition
SELECT name, is_key_partition FROM penstock.partitions WHERE id = %(partition)s
