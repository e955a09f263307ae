-- The mean rounds to 28 digits, ties to even. PostgreSQL's round() rounds ties away from zero. The exponent is read from
-- the text of the quotient: this is exact, and takes a fraction of the time of a logarithm.
CREATE OR REPLACE FUNCTION penstock.mean(total numeric, events bigint) RETURNS numeric
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    q        numeric := round(total, 60) / nullif(events, 0);
    digits   text := abs(q)::text;
    exponent integer;
    rounded  numeric;
    unit     numeric;
BEGIN
    IF q IS NULL OR q = 0 THEN
        RETURN trim_scale(q);
    END IF;
    exponent := CASE WHEN abs(q) >= 1 THEN strpos(digits, '.') - 2
                     ELSE length(ltrim(digits, '0.')) - length(digits) + 1 END;
    rounded := round(q, 27 - exponent);
    IF rounded <> q AND q * events = total THEN
        unit := ('1e' || exponent - 27)::numeric;
        IF abs(rounded - q) * 2 = unit AND div(abs(rounded), unit) % 2 = 1 THEN
            rounded := rounded - sign(q) * unit;
        END IF;
    END IF;
    RETURN trim_scale(rounded);
END
$$;
