-- Takes the marks of watch.sql away.
-- $1 names
SELECT pg_advisory_unlock_shared(hashtextextended('sm_lease ' || name, 0))
FROM unnest($1::text[]) AS name
