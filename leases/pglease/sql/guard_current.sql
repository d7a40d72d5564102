-- In a transaction that sees the database as of its start, guard_check.sql would
-- see the row as of then, too. There the row is locked in a way that fails
-- (40001) if it has changed since. It keeps Refresh and Release out as well.
-- $1 name, $2 owner, $3 fence
SELECT
FROM sm_lease
WHERE
    name = $1::text
    AND slot = coalesce(
        (SELECT slot FROM sm_lease WHERE name = $1::text AND slot_holder = $2::text AND fence = $3::bigint LIMIT 1), 0
    )
    AND holder = $2::text
    AND fence = $3::bigint
    AND current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted')
FOR SHARE
