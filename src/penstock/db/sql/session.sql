-- name: configure
-- The pid comes from the server, because a pooler in between reports its own. Penstock's statements look up few rows by
-- key. Their plans are made once, and never scan whole tables or all versions of a row, although the statistics of a new
-- or fast-growing table suggest that.
SELECT pg_backend_pid() AS pid,
       (SELECT backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()) AS started_at,
       set_config('TimeZone', 'UTC', false),
       -- A commit that is reported as successful is on disk, whatever the role or the database configures.
       set_config('synchronous_commit', CASE current_setting('synchronous_commit')
                  WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, false),
       set_config('default_transaction_isolation', 'read committed', false),
       set_config('plan_cache_mode', 'force_generic_plan', false),
       set_config('enable_seqscan', 'off', false),
       set_config('enable_bitmapscan', 'off', false),
       set_config('enable_hashjoin', 'off', false),
       set_config('enable_mergejoin', 'off', false),
       set_config('jit', 'off', false)
