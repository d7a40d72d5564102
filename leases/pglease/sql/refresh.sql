-- Extends a hold that is live once its row is locked (R2, R3): an UPDATE that
-- tested this in its own WHERE would test it before it had the lock, and could
-- bring a lapsed hold back to life.
--
-- Guard's lock does not conflict, but for one in a transaction that is repeatable
-- read or serializable: lock_timeout bounds that wait.
-- $1 name, $2 owner, $3 fence (0: any), $4 slots (0: lease), $5 ttl in
-- milliseconds
WITH
settings AS MATERIALIZED (
    SELECT set_config('lock_timeout', '1s', true)
),
locked AS MATERIALIZED (
    SELECT l.slot, l.expires_at
    FROM settings, sm_lease AS l
    WHERE
        l.name = $1::text
        AND l.slot = CASE
            WHEN $4::integer = 0 THEN 0
            ELSE (SELECT slot FROM sm_lease WHERE name = $1::text AND slot_holder = $2::text LIMIT 1)
        END
        AND l.holder = $2::text
        AND $3::bigint IN (0, l.fence)
        AND l.expires_at > '-infinity'
    FOR NO KEY UPDATE OF l
),
live AS MATERIALIZED (
    SELECT slot FROM locked WHERE expires_at > clock_timestamp()
)
UPDATE sm_lease AS l
SET expires_at = clock_timestamp() + $5::bigint * interval '1 millisecond'
WHERE l.name = $1::text AND l.slot = (SELECT slot FROM live)
