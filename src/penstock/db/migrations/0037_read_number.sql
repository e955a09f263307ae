-- A cast that raises. It is a call, so that a timeout is noticed between the numbers of one expression.
CREATE FUNCTION penstock.read_number(value anyelement) RETURNS numeric
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    RETURN value::numeric;
END
$$;
