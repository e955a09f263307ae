-- name: lock
-- In one order for all callers, so that two batches cannot deadlock.
SELECT penstock.lock_kv(s.namespace, s.key)
FROM (
    SELECT DISTINCT w.namespace COLLATE "C" AS namespace, w.key COLLATE "C" AS key
    FROM unnest(%(namespaces)s::text[], %(keys)s::text[]) AS w (namespace, key) ORDER BY 1, 2
) s

-- name: put
SELECT applied, reason, value::text, version, expires_at, updated_at
FROM penstock.kv_put(
    %(namespace)s, %(key)s, %(value)s::jsonb, %(seconds)s::double precision, %(expect)s::bigint, %(skew)s)

-- name: delete
SELECT applied, reason, value::text, version, expires_at, updated_at
FROM penstock.kv_delete(%(namespace)s, %(key)s, %(expect)s::bigint, %(skew)s)

-- name: increment
SELECT applied, reason, value::text, version, expires_at, updated_at
FROM penstock.kv_increment(
    %(namespace)s, %(key)s, %(delta)s::numeric, %(seconds)s::double precision, %(minimum)s::numeric,
    %(maximum)s::numeric, %(skew)s)

-- name: check
SELECT applied, reason, value::text, version, expires_at, updated_at
FROM penstock.kv_check(%(namespace)s, %(key)s, %(expect)s::bigint, %(skew)s)

-- name: get_many
-- One row for each entry, up to the one that exceeds max_bytes.
SELECT s.key, s.value, s.version, s.expires_at, s.updated_at
FROM (
    SELECT k.key, k.value::text AS value, k.version, nullif(k.expires_at, 'infinity') AS expires_at, k.updated_at,
           sum(octet_length(k.value::text)) OVER (ORDER BY k.key ROWS UNBOUNDED PRECEDING) AS total
    FROM penstock.kv k
    WHERE k.namespace = %(namespace)s AND k.key = ANY(%(keys)s::text[])
      AND k.expires_at > clock_timestamp() + %(skew)s
) s
WHERE s.total - octet_length(s.value) <= %(max_bytes)s
ORDER BY s.key

-- name: get_prefix
SELECT s.key, s.value, s.version, s.expires_at, s.updated_at
FROM (
    SELECT p.*, sum(coalesce(octet_length(p.value), 0)) OVER (ORDER BY p.key ROWS UNBOUNDED PRECEDING) AS total
    FROM (
        SELECT k.key, CASE WHEN %(keys_only)s THEN NULL ELSE k.value::text END AS value, k.version,
               nullif(k.expires_at, 'infinity') AS expires_at, k.updated_at
        FROM penstock.kv k
        WHERE k.namespace = %(namespace)s AND k.key >= %(prefix)s AND k.key > %(after)s
          -- The largest character, more often than it fits into a key, ends the range of the index.
          AND k.key <= %(prefix)s || repeat(chr(1114111), 300) AND starts_with(k.key, %(prefix)s)
          AND k.expires_at > clock_timestamp() + %(skew)s
        ORDER BY k.key LIMIT %(limit)s
    ) p
) s
WHERE s.total - coalesce(octet_length(s.value), 0) <= %(max_bytes)s
ORDER BY s.key

-- name: delete_expired
-- The time is a subquery, because an index cannot be searched for a volatile function.
DELETE FROM penstock.kv k USING (
    SELECT e.namespace, e.key FROM penstock.kv e
    WHERE e.expires_at <= (SELECT clock_timestamp() + %(skew)s) AND e.expires_at < 'infinity'
    ORDER BY e.expires_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
) e
WHERE k.namespace = e.namespace AND k.key = e.key AND k.expires_at <= clock_timestamp() + %(skew)s
