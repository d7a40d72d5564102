-- Marks names as waited for, until the session ends or unwatch.sql: a release
-- that can't have the name's advisory lock knows that it has to notify.
-- $1 names
SELECT pg_advisory_lock_shared(hashtextextended('sm_lease ' || name, 0))
FROM unnest($1::text[]) AS name
