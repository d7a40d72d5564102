-- Tells the waiters of names. Commits that notify queue behind one lock of the
-- database: so this is a statement of its own, for many names at once. It does
-- not wait for the disk.
-- $1 names
WITH settings AS MATERIALIZED (
    SELECT set_config('synchronous_commit', 'off', true)
)
SELECT pg_notify('sm_lease', name)
FROM settings, unnest($1::text[]) AS name
