-- States of percentiles are merged in one pass, and values are counted in buckets without a state of all values before.
CREATE FUNCTION penstock.bucket_name(name text) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    value double precision;
BEGIN
    IF name NOT LIKE '=%' OR name IN ('=NaN', '=Infinity', '=-Infinity') THEN
        RETURN name;
    END IF;
    value := substr(name, 2);
    IF value = 0 THEN
        RETURN '0';
    END IF;
    RETURN sign(value)::integer * (100000 + ceil(ln(abs(value)) / ln(1.02::double precision))::integer);
END
$$;

CREATE OR REPLACE FUNCTION penstock.fold_values(counts jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT jsonb_object_agg(f.name, f.events)
    FROM (SELECT penstock.bucket_name(e.key) AS name, sum(e.value::bigint)::bigint AS events
          FROM jsonb_each_text(counts) AS e GROUP BY 1) AS f
$$;

CREATE OR REPLACE FUNCTION penstock.add_values(a jsonb, b jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN a IS NULL THEN b WHEN b IS NULL THEN a ELSE (
        SELECT CASE WHEN bool_or(m.is_value) AND (NOT bool_and(m.is_value) OR count(*) > 1024)
                    THEN penstock.fold_values(jsonb_object_agg(m.name, m.events))
                    ELSE coalesce(jsonb_object_agg(m.name, m.events), '{}') END
        FROM (SELECT e.key AS name, e.key LIKE '=%' AS is_value, sum(e.value::bigint)::bigint AS events
              FROM (SELECT * FROM jsonb_each_text(a) UNION ALL SELECT * FROM jsonb_each_text(b)) AS e
              GROUP BY e.key) AS m
        ) END
$$;

DROP FUNCTION penstock.value_bucket(double precision);
