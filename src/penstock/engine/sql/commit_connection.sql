-- name: configure
-- The merge of a cycle joins thousands of rows, hence work_mem. A commit that was reported must survive a crash of the
-- server, hence synchronous_commit is never off.
SELECT set_config('TimeZone', 'UTC', false),
       set_config('jit', 'off', false),
       set_config('work_mem', '64MB', false),
       set_config('synchronous_commit',
                  CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on'
                                                             ELSE current_setting('synchronous_commit') END, false),
       set_config('idle_in_transaction_session_timeout', %(idle_timeout)s, false)
