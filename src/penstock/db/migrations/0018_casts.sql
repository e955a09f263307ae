-- What a closed window shows is computed of numbers that any event may have made: a value that does not fit a type is null.

-- Values as other types, as Spark's TRY_CAST has them. An error would be nobody's: the window could never close. Text is
-- looked at before it is cast, and not after its type, for PostgreSQL casts constants beforehand. None calls another by
-- its name: who reads a view may look for nothing in this schema. No text with a point is a `whole` number.
CREATE FUNCTION penstock.as_number(value anyelement, whole boolean) RETURNS numeric
LANGUAGE sql STABLE STRICT PARALLEL SAFE AS $$
    SELECT CASE
        WHEN pg_typeof(value) = 'boolean'::regtype THEN CASE value::text WHEN 'true' THEN 1 ELSE 0 END
        WHEN pg_typeof(value) = 'timestamptz'::regtype THEN extract(epoch FROM value::text::timestamptz)
        WHEN whole AND pg_typeof(value) = 'text'::regtype AND value::text !~ '^\s*[+-]?\d+\s*$' THEN NULL
        WHEN length(value::text) < 1000 AND value::text ~ '^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?\s*$'
            THEN value::text::numeric
    END
$$;

-- Without what is after the point; `highest` is that of the type.
CREATE FUNCTION penstock.as_whole(number numeric, highest numeric) RETURNS numeric
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT CASE WHEN trunc(number) BETWEEN -highest - 1 AND highest THEN trunc(number) END
$$;

CREATE FUNCTION penstock.as_decimal(number numeric, digits integer, after_point integer) RETURNS numeric
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT CASE WHEN abs(n.rounded) < 10::numeric ^ (digits - after_point) THEN n.rounded END
    FROM (SELECT round(number, after_point) AS rounded) AS n
$$;

CREATE FUNCTION penstock.as_double(number numeric) RETURNS double precision
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT CASE
        WHEN abs(number) > 1.7976931348623157e308 THEN NULL
        WHEN abs(number) < 5e-324 THEN 0
        ELSE number::double precision
    END
$$;

CREATE FUNCTION penstock.as_boolean(value anyelement) RETURNS boolean
LANGUAGE sql STABLE STRICT PARALLEL SAFE AS $$
    SELECT CASE
        WHEN lower(trim(value::text)) IN ('t', 'true', 'y', 'yes') THEN true
        WHEN lower(trim(value::text)) IN ('f', 'false', 'n', 'no') THEN false
        WHEN value::text ~ '\d' AND (pg_typeof(value) <> 'text'::regtype OR trim(value::text) IN ('0', '1'))
            THEN value::text ~ '[1-9]'
    END
$$;

-- A moment as Spark spells it, by the clock of UTC.
CREATE FUNCTION penstock.as_text(value anyelement) RETURNS text
LANGUAGE sql STABLE STRICT PARALLEL SAFE AS $$
    SELECT CASE pg_typeof(value)
        WHEN 'timestamptz'::regtype THEN
            regexp_replace(to_char(value::text::timestamptz AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US'), '\.?0+$', '')
        ELSE value::text
    END
$$;

-- Numbers are seconds since 1970; text without a zone is of UTC.
CREATE FUNCTION penstock.as_moment(value anyelement) RETURNS timestamptz
LANGUAGE plpgsql STABLE STRICT AS $$
DECLARE
    spelt constant text := trim(value::text);
BEGIN
    IF pg_typeof(value) <> ALL ('{text,date,timestamp,timestamptz}'::regtype[]) THEN
        RETURN to_timestamp(spelt::double precision);
    END IF;
    RETURN CASE
        WHEN pg_typeof(value) = 'timestamptz'::regtype THEN spelt::timestamptz
        WHEN pg_typeof(value) = 'text'::regtype AND spelt !~ '^\d{4}-\d{1,2}-\d{1,2}' THEN NULL
        WHEN pg_typeof(value) = ANY ('{text,date,timestamp}'::regtype[]) AND spelt ~ '^[-0-9]+([ T][0-9:.]+)?$'
            THEN (spelt || ' UTC')::timestamptz
        WHEN pg_typeof(value) = 'text'::regtype THEN spelt::timestamptz
    END;
EXCEPTION WHEN data_exception THEN
    RETURN NULL;
END
$$;

-- A mean to 28 digits, as Python's Decimal gives it; what is too small for its digits is 0.
CREATE OR REPLACE FUNCTION penstock.mean(total numeric, events bigint) RETURNS numeric
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN events IS NULL OR events = 0 OR total IS NULL THEN NULL WHEN q = 0 THEN 0
           ELSE trim_scale(round(q, 27 - floor(log(abs(q)))::integer)) END
    FROM (SELECT round(total, 60) / events AS q) AS d
$$;

-- The sum of two doubles, infinite where there is no room for it: PostgreSQL would raise an error.
CREATE FUNCTION penstock.add_doubles(a double precision, b double precision) RETURNS double precision
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT CASE WHEN n.total > 1.7976931348623157e308 THEN 'Infinity' WHEN n.total < -1.7976931348623157e308 THEN '-Infinity'
           ELSE n.total::double precision END
    FROM (SELECT a::text::numeric + b::text::numeric AS total) AS n
$$;

-- Moments of two samples as those of both: count, mean, sum of squared deviations. Numbers that have no room for their
-- squares have an infinite one, and those that differ by less than has room do not differ.
CREATE OR REPLACE FUNCTION penstock.join_moments(a double precision[], b double precision[]) RETURNS double precision[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN a IS NULL OR a[1] = 0 THEN b WHEN b IS NULL OR b[1] = 0 THEN a
           WHEN greatest(abs(a[2]), abs(b[2])) > 1e120 OR greatest(a[3], b[3]) > 1e300
               THEN ARRAY[a[1] + b[1], 'Infinity', 'Infinity']
           ELSE ARRAY[a[1] + b[1], a[2] + d.apart * b[1] / (a[1] + b[1]),
                      a[3] + b[3] + d.apart * d.apart * a[1] * b[1] / (a[1] + b[1])] END
    FROM (SELECT CASE WHEN abs(b[2] - a[2]) > 1e-150 THEN b[2] - a[2] ELSE 0 END AS apart) AS d
$$;
