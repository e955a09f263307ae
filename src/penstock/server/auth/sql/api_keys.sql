-- name: create
INSERT INTO penstock.api_keys (id, name, roles, queues, hash, expires_at)
VALUES (%(id)s, %(name)s, %(roles)s, %(queues)s, %(hash)s, %(expires_at)s)
-- A retry after a lost result finds its own row: it has the same hash.
ON CONFLICT (id) DO UPDATE SET id = excluded.id WHERE api_keys.hash = excluded.hash
RETURNING id, name, roles, queues, created_at, expires_at, revoked_at, rotated_at, previous_until, last_used_at

-- name: list
SELECT id, name, roles, queues, created_at, expires_at, revoked_at, rotated_at, previous_until, last_used_at
FROM penstock.api_keys
ORDER BY created_at, id

-- name: revoke
UPDATE penstock.api_keys SET revoked_at = coalesce(revoked_at, clock_timestamp()) WHERE id = %(id)s
RETURNING id, name, roles, queues, created_at, expires_at, revoked_at, rotated_at, previous_until, last_used_at

-- name: rotate
-- A retry after a lost result changes nothing; else the new secret would become the previous one too.
UPDATE penstock.api_keys
SET previous_hash = CASE WHEN hash = %(hash)s THEN previous_hash ELSE hash END,
    previous_until = CASE WHEN hash = %(hash)s THEN previous_until
                          ELSE clock_timestamp() + make_interval(secs => %(grace)s) END,
    hash = %(hash)s, rotated_at = clock_timestamp()
WHERE id = %(id)s AND revoked_at IS NULL
RETURNING id, name, roles, queues, created_at, expires_at, revoked_at, rotated_at, previous_until, last_used_at

-- name: find
-- The clock of the database decides which of the two hashes are valid.
SELECT id, roles, queues,
       CASE WHEN revoked_at IS NULL AND coalesce(expires_at > clock_timestamp(), true) THEN hash END AS hash,
       CASE WHEN revoked_at IS NULL AND coalesce(expires_at > clock_timestamp(), true)
                 AND previous_until > clock_timestamp() THEN previous_hash END AS previous_hash
FROM penstock.api_keys
WHERE id = %(id)s

-- name: used
-- At most once a minute, however often the key is used.
UPDATE penstock.api_keys SET last_used_at = clock_timestamp()
WHERE id = %(id)s AND coalesce(last_used_at < clock_timestamp() - interval '1 minute', true)

-- name: has_active
SELECT EXISTS (SELECT FROM penstock.api_keys
               WHERE revoked_at IS NULL AND coalesce(expires_at > clock_timestamp(), true)) AS has_active
