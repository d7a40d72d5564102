-- Ends a hold that is live once its row is locked (R2, R3), as refresh.sql does.
-- The row stays, for its fence. The commit does not wait for the disk: a release
-- that a crash undoes costs others no more than the rest of the TTL.
-- $1 name, $2 owner, $3 fence (0: any), $4 slots (0: lease)
-- Returns no row if there is no such hold, else whether somebody waits for the
-- name (watch.sql) and has to be notified.
WITH
settings AS MATERIALIZED (
    SELECT set_config('lock_timeout', '1s', true), set_config('synchronous_commit', 'off', true)
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
SET expires_at = '-infinity'
WHERE l.name = $1::text AND l.slot = (SELECT slot FROM live)
RETURNING NOT pg_try_advisory_xact_lock(hashtextextended('sm_lease ' || $1::text, 0))
