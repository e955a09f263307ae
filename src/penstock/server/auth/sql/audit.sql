-- name: write
INSERT INTO penstock.audit (who, action, subject, address, outcome, request_id)
SELECT * FROM unnest(%(who)s::text[], %(action)s::text[], %(subject)s::text[], %(address)s::text[],
                     %(outcome)s::text[], %(request_id)s::text[])

-- name: read
SELECT at, who, action, subject, address, outcome, request_id
FROM penstock.audit
WHERE (%(who)s::text IS NULL OR who = %(who)s)
ORDER BY id DESC
LIMIT %(limit)s

-- name: delete_expired
-- In small batches: it runs repeatedly.
DELETE FROM penstock.audit
WHERE id IN (SELECT id FROM penstock.audit
             WHERE at < clock_timestamp() - make_interval(days => %(days)s) ORDER BY id LIMIT 10000)
