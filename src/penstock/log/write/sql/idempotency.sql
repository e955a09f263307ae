-- name: claim_requests
INSERT INTO penstock.requests (idempotency_key, fingerprint, result, created_at)
SELECT w.key, w.fingerprint, '', clock_timestamp() + %(skew)s
FROM unnest(%(keys)s::text[], %(fingerprints)s::bytea[]) AS w (key, fingerprint)
ON CONFLICT (idempotency_key) DO NOTHING
RETURNING idempotency_key

-- name: read_request
SELECT fingerprint, result FROM penstock.requests WHERE idempotency_key = %(key)s

-- name: store_requests
UPDATE penstock.requests r SET result = w.result
FROM unnest(%(keys)s::text[], %(results)s::bytea[]) AS w (key, result)
WHERE r.idempotency_key = w.key

-- name: delete_expired
DELETE FROM penstock.requests WHERE created_at < clock_timestamp() - interval '24 hours'
