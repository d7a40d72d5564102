-- Whether the hold is live: a statement of its own, so that both what it sees
-- and its clock are later than the lock of guard_lock.sql.
-- $1 name, $2 owner, $3 fence
SELECT
    count(*) > 0
FROM sm_lease
WHERE
    name = $1::text
    AND slot = coalesce(
        (SELECT slot FROM sm_lease WHERE name = $1::text AND slot_holder = $2::text AND fence = $3::bigint LIMIT 1), 0
    )
    AND holder = $2::text
    AND fence = $3::bigint
    AND expires_at > clock_timestamp()
