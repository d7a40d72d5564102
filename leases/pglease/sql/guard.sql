-- Locks the hold's row until the caller's transaction ends, and only then reads
-- the clock. Nobody can take the hold over meanwhile.
-- $1 name, $2 owner, $3 fence
WITH hold AS MATERIALIZED (
    SELECT expires_at
    FROM sm_lease
    WHERE name = $1 AND holder = $2 AND fence = $3::bigint
    FOR SHARE
)
SELECT count(*) > 0 FROM hold WHERE expires_at > clock_timestamp()
