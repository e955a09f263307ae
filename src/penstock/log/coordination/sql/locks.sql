-- name: acquire
SELECT slot, token, already, expires_at
FROM penstock.lock_acquire(%(name)s, %(owner)s, %(seconds)s::double precision, %(limit)s::integer, %(skew)s)

-- name: renew
SELECT token, expires_at
FROM penstock.lock_renew(%(name)s, %(token)s::bigint, %(seconds)s::double precision, %(owner)s::text, %(slot)s::integer, %(skew)s)

-- name: holders
-- A name cannot contain #, so the prefix matches the permits of one name only.
SELECT split_part(k.key, '#', 2)::integer, k.value ->> 'owner', k.version, (k.value ->> 'since')::timestamptz,
       k.expires_at, k.updated_at
FROM penstock.kv k
WHERE k.namespace = 'queen-locks' AND k.key > %(name)s || '#' AND k.key < %(name)s || '$'
  AND split_part(k.key, '#', 2) ~ '^[0-9]{1,4}$' AND k.expires_at > clock_timestamp() + %(skew)s
  AND k.expires_at < 'infinity' AND k.value ->> 'since' IS NOT NULL
ORDER BY 1
