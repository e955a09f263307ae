-- The case of letters as Spark knows it, whatever the language of the database: the upper case of ß is SS. These collations
-- have the same rules: those of ICU, if PostgreSQL is built with it, and one that PostgreSQL 18 and later have. Without
-- either, the rules are those of the database.
DO $$
DECLARE
    candidate text;
    rules text := 'default';
    upper_case text;
    name text;
BEGIN
    FOREACH candidate IN ARRAY ARRAY['pg_unicode_fast', 'und-x-icu'] LOOP
        BEGIN
            EXECUTE format('SELECT upper(''ß'' COLLATE %I)', candidate) INTO upper_case;
            IF upper_case = 'SS' THEN
                rules := candidate;
            END IF;
        EXCEPTION WHEN OTHERS THEN
            NULL;
        END;
    END LOOP;
    FOREACH name IN ARRAY ARRAY['upper', 'lower'] LOOP
        EXECUTE format('CREATE FUNCTION penstock.%1$s_case(value text) RETURNS text
            LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE RETURN %1$s(value COLLATE %2$I) COLLATE "C"', name, rules);
    END LOOP;
END
$$;
