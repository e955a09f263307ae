-- name: set_subscription
UPDATE penstock.groups SET subscribed_from = %(start)s WHERE id = ANY(%(groups)s)
