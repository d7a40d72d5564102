-- Whether the owner has a live hold of the name. $1 name, $2 owner.
SELECT EXISTS (
    SELECT 1
    FROM sm_lease
    WHERE name = $1 AND holder = $2 AND expires_at > clock_timestamp()
)
