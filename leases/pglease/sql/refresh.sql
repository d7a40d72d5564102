-- Extends a hold that is live once its row is locked (R2, R3): an UPDATE that
-- tested this in its own WHERE would test it before the wait for the lock, and
-- could bring an expired hold back to life.
-- $1 name, $2 owner, $3 fence (0: any), $4 slots (0: lease), $5 ttl in
-- milliseconds, $6 lock_timeout.
WITH settings AS MATERIALIZED (
    SELECT set_config('lock_timeout', $6, true)
),
hold AS MATERIALIZED (
    SELECT l.name, l.slot, l.expires_at
    FROM settings, sm_lease AS l
    WHERE
        l.name = $1
        AND l.holder = $2
        AND (l.slot > 0) = ($4::integer > 0)
        AND ($3::bigint = 0 OR l.fence = $3::bigint)
        AND l.expires_at > statement_timestamp()
    FOR NO KEY UPDATE OF l
)
UPDATE sm_lease AS l
SET expires_at = clock_timestamp() + $5::bigint * interval '1 millisecond'
FROM hold
WHERE l.name = hold.name AND l.slot = hold.slot AND hold.expires_at > clock_timestamp()
