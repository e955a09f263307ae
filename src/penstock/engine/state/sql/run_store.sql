-- name: load_runs
-- The pieces of an operator's runs, the oldest first: their hashes, and the rows of small pieces. Pieces of runs that the
-- worker has cached come without data.
SELECT r.sequence, r.part, r.shard, r.run_id, r.rows, r.min_us, r.median_us, r.max_us,
    CASE
        WHEN r.run_id = ANY(%(cached)s::text[]) THEN NULL
        WHEN octet_length(r.data) <= 65536 THEN r.data
        ELSE substring(r.data FROM 1 FOR (8 * r.rows)::integer)
    END AS data
FROM penstock.state_runs r
WHERE r.query_id = %(query)s AND r.operator = %(operator)s AND r.shard = ANY(%(shards)s::integer[]) AND r.is_current
    AND (%(parts)s::integer[] IS NULL OR r.part = ANY(%(parts)s::integer[]))
ORDER BY r.sequence

-- name: load_pieces
-- The rows of pieces, without the hashes.
SELECT r.sequence, substring(r.data FROM (8 * r.rows + 1)::integer) AS data
FROM penstock.state_runs r
WHERE r.query_id = %(query)s AND r.operator = %(operator)s AND r.shard = ANY(%(shards)s::integer[])
    AND r.sequence = ANY(%(sequences)s::bigint[])

-- name: stage_run
INSERT INTO penstock.state_runs (query_id, operator, shard, part, run_id, token, attempt, replaces, rows, min_us,
                                median_us, max_us, data)
VALUES (
    %(query)s, %(operator)s, %(shard)s, %(part)s, %(run_id)s, %(token)s, %(attempt)s, %(replaces)s::text[], %(rows)s,
    %(min_us)s, %(median_us)s, %(max_us)s, %(data)b
)

-- name: apply_runs
-- Makes the runs of a Spark job current, and deletes those that they replace and those of failed jobs. Returns the number
-- of pieces. A job may compute an operator twice, in attempts of a task or where its result is used twice. The runs are
-- equal, and the last one counts.
WITH pending AS MATERIALIZED (
    SELECT r.operator, r.shard, r.sequence, r.replaces, r.rows,
        r.token = %(token)s AND r.run_id = first_value(r.run_id) OVER (
            PARTITION BY r.operator, r.part, r.shard
            ORDER BY r.token = %(token)s DESC, r.attempt DESC, r.sequence DESC
        ) AS is_applied
    FROM penstock.state_runs r
    WHERE r.query_id = %(query)s AND NOT r.is_current
), replaced AS (
    DELETE FROM penstock.state_runs r
    USING (SELECT p.operator, p.shard, unnest(p.replaces) AS run_id FROM pending p WHERE p.is_applied) old
    WHERE r.query_id = %(query)s AND r.operator = old.operator AND r.shard = old.shard AND r.run_id = old.run_id
        AND r.is_current
), dropped AS (
    DELETE FROM penstock.state_runs r
    USING pending p
    WHERE r.query_id = %(query)s AND r.operator = p.operator AND r.shard = p.shard AND r.sequence = p.sequence
        AND (NOT p.is_applied OR p.rows = 0)
), applied AS (
    UPDATE penstock.state_runs r SET is_current = true
    FROM pending p
    WHERE r.query_id = %(query)s AND r.operator = p.operator AND r.shard = p.shard AND r.sequence = p.sequence
        AND p.is_applied AND p.rows > 0
    RETURNING 1
)
SELECT count(*) FROM applied
