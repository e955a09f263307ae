-- name: partition
SELECT name, is_lane FROM penstock.partitions WHERE id = %(partition)s
