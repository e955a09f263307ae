-- name: configure_planner
SELECT set_config('statement_timeout', '3s', true)

-- name: windows
-- The newest windows of a key. The index has no key first, so the search is limited to the last hundred window lengths,
-- or an hour if that is longer.
SELECT v.window_start, v.window_end, v.updated_at, v.is_open, v.revision{values}
FROM penstock_history.{view} v
WHERE coalesce(v.key, '') = %(key)s
  AND v.window_end > (
      SELECT n.window_end - greatest((n.window_end - n.window_start) * 100, interval '1 hour')
      FROM penstock_history.{view} n ORDER BY n.window_end DESC LIMIT 1
  )
ORDER BY v.window_end DESC, v.window_start DESC LIMIT %(limit)s
