-- Locks the hold's row until the caller's transaction ends. Every grant needs
-- FOR UPDATE on the row that it takes, and so must leave this one alone; a
-- Refresh and a Release, which change no key, need not.
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
FOR KEY SHARE
