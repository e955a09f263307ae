"""The schema ``penstock`` as text, from the catalogs: the same text means the same schema."""

from __future__ import annotations

from typing import Any

import psycopg

_SNAPSHOT = """
WITH relation AS (
    SELECT *, oid::regclass::text AS label
    FROM pg_class
    WHERE relnamespace = to_regnamespace('penstock')
),
line (kind, label, place, definition) AS (
    SELECT 'relation', label, 0,
           concat_ws(' ', relkind, relpersistence, reloptions::text, pg_get_partkeydef(oid),
                     pg_get_expr(relpartbound, oid), CASE WHEN relrowsecurity THEN 'row security' END)
    FROM relation
    WHERE relkind IN ('r', 'p', 'v', 'm', 'S', 'f')
    UNION ALL
    SELECT 'column', r.label, rank() OVER (PARTITION BY r.oid ORDER BY a.attnum),
           concat_ws(' ', a.attname, format_type(a.atttypid, a.atttypmod),
                     CASE WHEN a.attcollation <> t.typcollation THEN 'collate ' || c.collname END,
                     CASE WHEN a.attnotnull THEN 'not null' END,
                     'default ' || pg_get_expr(d.adbin, d.adrelid),
                     'identity ' || nullif(a.attidentity::text, ''),
                     'generated ' || nullif(a.attgenerated::text, ''),
                     'storage ' || a.attstorage::text, 'compression ' || nullif(a.attcompression::text, ''),
                     a.attoptions::text, '-- ' || col_description(r.oid, a.attnum))
    FROM relation r
    JOIN pg_attribute a ON a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped
    JOIN pg_type t ON t.oid = a.atttypid
    LEFT JOIN pg_collation c ON c.oid = a.attcollation
    LEFT JOIN pg_attrdef d ON d.adrelid = r.oid AND d.adnum = a.attnum
    WHERE r.relkind IN ('r', 'p', 'v', 'm', 'f', 'c')
    UNION ALL
    SELECT 'constraint', concat_ws('.', coalesce(r.label, c.contypid::regtype::text), c.conname), 0,
           pg_get_constraintdef(c.oid) || CASE WHEN c.convalidated THEN '' ELSE ' (not validated)' END
    FROM pg_constraint c
    LEFT JOIN relation r ON r.oid = c.conrelid
    WHERE c.connamespace = to_regnamespace('penstock')
    UNION ALL
    SELECT 'index', label, 0,
           pg_get_indexdef(oid) || CASE WHEN i.indisvalid THEN '' ELSE ' (not valid)' END
    FROM relation JOIN pg_index i ON i.indexrelid = oid
    UNION ALL
    SELECT 'sequence', label, 0, concat_ws(' ', seqtypid::regtype, seqstart, seqincrement, seqmax, seqmin,
                                           seqcache, seqcycle)
    FROM relation JOIN pg_sequence ON seqrelid = oid
    UNION ALL
    SELECT 'view', label, 0, pg_get_viewdef(oid)
    FROM relation
    WHERE relkind IN ('v', 'm')
    UNION ALL
    SELECT 'trigger', r.label || '.' || t.tgname, 0, pg_get_triggerdef(t.oid)
    FROM pg_trigger t JOIN relation r ON r.oid = t.tgrelid
    WHERE NOT t.tgisinternal
    UNION ALL
    SELECT 'function', p.oid::regprocedure::text, 0,
           CASE WHEN p.prokind IN ('f', 'p') THEN pg_get_functiondef(p.oid) ELSE p.prokind::text END
    FROM pg_proc p
    WHERE p.pronamespace = to_regnamespace('penstock')
    UNION ALL
    SELECT 'type', t.oid::regtype::text, 0,
           concat_ws(' ', t.typtype,
                     CASE WHEN t.typtype = 'd' THEN format_type(t.typbasetype, t.typtypmod) END,
                     (SELECT string_agg(enumlabel, ', ' ORDER BY enumsortorder)
                      FROM pg_enum WHERE enumtypid = t.oid))
    FROM pg_type t
    WHERE t.typnamespace = to_regnamespace('penstock') AND t.typtype IN ('d', 'e', 'r', 'm')
    UNION ALL
    SELECT 'comment', label, 0, obj_description(oid, 'pg_class')
    FROM relation
    WHERE obj_description(oid, 'pg_class') IS NOT NULL
    UNION ALL
    SELECT 'comment', p.oid::regprocedure::text, 0, obj_description(p.oid, 'pg_proc')
    FROM pg_proc p
    WHERE p.pronamespace = to_regnamespace('penstock') AND obj_description(p.oid, 'pg_proc') IS NOT NULL
)
SELECT concat_ws(' ', kind, label, nullif(place, 0), definition)
FROM line
ORDER BY kind COLLATE "C", label COLLATE "C", place, definition COLLATE "C"
"""


def schema_snapshot(conn: psycopg.Connection[Any]) -> str:
    """Describe columns, constraints, indexes, functions, views and the rest, one line or more for each."""
    with conn.transaction(force_rollback=True), conn.cursor(row_factory=psycopg.rows.scalar_row) as cursor:
        # With nothing in the path every name comes out with its schema.
        cursor.execute("SET LOCAL search_path = pg_catalog")
        cursor.execute(_SNAPSHOT)
        return "\n".join(cursor.fetchall()) + "\n"
