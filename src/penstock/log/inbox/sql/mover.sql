-- name: is_used
-- Whether something was ever pushed from SQL.
SELECT last_value > 1 FROM penstock.inbox_sequence

-- name: begin
-- The transaction of the mover stays open while it holds its locks. It has no snapshot meanwhile.
SELECT set_config(name, '0', true) FROM pg_settings
WHERE name IN ('idle_in_transaction_session_timeout', 'statement_timeout', 'transaction_timeout')

-- name: try_lock
SELECT pg_try_advisory_xact_lock(%(locks)s::integer, %(lock)s::integer)

-- name: can_be_prepared
-- Whether transactions can be prepared for a two-phase commit. If so, pushes send no notifications.
SELECT current_setting('max_prepared_transactions') <> '0'

-- name: notify
SELECT pg_notify('penstock', %(topic)s)

-- name: check
SELECT
