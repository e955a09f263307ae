-- Percentiles are exact while a window has at most 1,024 distinct values. The state counts the events of each value, by
-- "=" and the value. With more values it counts them in buckets of 2 percent, by the number of the bucket. Which of the two
-- it is depends on the values alone, not on the order in which states are merged.

-- Buckets of states from before this migration are numbered from 10,000 and end at 45,900.
CREATE OR REPLACE FUNCTION penstock.bucket_value(bucket integer) RETURNS double precision
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
-- The middle of a bucket, 2 * 1.02^n / 2.02, from its lower bound: the upper one may be more than the largest double.
RETURN CASE WHEN bucket = 0 THEN 0 ELSE
    sign(bucket::double precision) * (1.02::double precision * 2 / 2.02) * least(
        power(1.02::double precision, abs(bucket) - 1 - CASE WHEN abs(bucket) < 60000 THEN 10000 ELSE 100000 END),
        1.78e308::double precision)
END;

CREATE FUNCTION penstock.value_bucket(value double precision) RETURNS integer
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN value = 0 THEN 0 ELSE
    sign(value)::integer * (100000 + ceil(ln(abs(value)) / ln(1.02::double precision))::integer)
END;

CREATE FUNCTION penstock.counted_value(name text) RETURNS double precision
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN name LIKE '=%' THEN substr(name, 2)::double precision ELSE penstock.bucket_value(name::integer) END;

-- Replaces the values of a state by buckets if there are too many, or if others are in buckets already.
CREATE FUNCTION penstock.fold_values(counts jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT CASE WHEN n.has_values AND (n.has_buckets OR n.names > 1024) THEN (
        SELECT jsonb_object_agg(f.name, f.events) FROM (
            SELECT CASE WHEN e.key LIKE '=%' AND e.key NOT IN ('=NaN', '=Infinity', '=-Infinity')
                        THEN penstock.value_bucket(substr(e.key, 2)::double precision)::text ELSE e.key END AS name,
                   sum(e.value::bigint)::bigint AS events
            FROM jsonb_each_text(counts) AS e GROUP BY 1
        ) AS f) ELSE counts END
    FROM (SELECT count(*) AS names, coalesce(bool_or(k LIKE '=%'), false) AS has_values,
                 coalesce(bool_or(k NOT LIKE '=%'), false) AS has_buckets
          FROM jsonb_object_keys(counts) AS k) AS n
$$;

CREATE FUNCTION penstock.add_values(a jsonb, b jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN a IS NULL THEN b WHEN b IS NULL THEN a ELSE penstock.fold_values(penstock.add_counts(a, b)) END
$$;

-- The first value whose rank is at least this fraction of all, as percentile_disc defines it.
CREATE OR REPLACE FUNCTION penstock.bucket_percentile(counts jsonb, fraction double precision) RETURNS double precision
LANGUAGE sql IMMUTABLE PARALLEL SAFE BEGIN ATOMIC
    SELECT r.value FROM (
        SELECT c.value, sum(c.events) OVER (ORDER BY c.value) AS upto, sum(c.events) OVER () AS whole
        FROM (SELECT penstock.counted_value(e.key) AS value, e.value::bigint AS events
              FROM jsonb_each_text(counts) AS e) AS c
    ) AS r
    WHERE r.upto >= fraction::text::numeric * r.whole ORDER BY r.value LIMIT 1;
END;
