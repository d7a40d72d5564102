-- Waits for the grants of this name that are under way, so that the attempt,
-- which is the next statement of the same transaction, sees them and is not
-- overtaken. It decides nothing. If the name is surely busy it only reads.
--
-- Guard's lock on the row does not conflict, but for one in a transaction that is
-- repeatable read or serializable: lock_timeout bounds that wait.
-- $1 name, $2 owner, $3 slots (0: lease)
WITH
clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now, set_config('lock_timeout', '1s', true) AS lock_timeout
),
state AS MATERIALIZED (
    SELECT
        clock.now,
        head.fence AS head,
        coalesce(head.expires_at > clock.now, false) AS is_lease,
        coalesce(head.holder = $2::text, false) AS own_lease,
        coalesce((SELECT max(slot) FROM sm_lease WHERE name = $1::text AND slot > 0), 0) AS places
    FROM clock LEFT JOIN sm_lease AS head ON head.name = $1::text AND head.slot = 0
),
seen AS MATERIALIZED ( -- as in acquire_slot.sql
    SELECT
        head,
        CASE
            WHEN is_lease THEN $3::integer = 0 AND own_lease
            WHEN places < $3::integer THEN true
            WHEN $3::integer > 0
                AND (SELECT slot_ends FROM sm_lease WHERE name = $1::text AND slot_holder = $2::text LIMIT 1) > now
                THEN true
            WHEN $3::integer > 0 AND places = $3::integer
                THEN (
                    SELECT slot_ends
                    FROM sm_lease
                    WHERE name = $1::text AND slot_ends IS NOT NULL
                    ORDER BY slot_ends
                    LIMIT 1
                ) <= now
            ELSE greatest($3::integer, 1) > (
                SELECT count(*)
                FROM (
                    SELECT
                    FROM sm_lease
                    WHERE name = $1::text AND slot_ends > now
                    ORDER BY slot_ends
                    LIMIT greatest($3::integer, 1)
                ) AS live
            )
        END AS has_room
    FROM state
),
made AS (
    INSERT INTO sm_lease (name, slot, holder, fence, expires_at)
    SELECT
        $1::text, 0, '', coalesce((SELECT max(fence) FROM sm_lease WHERE name = $1::text), 0), '-infinity'
    FROM seen
    WHERE has_room AND head IS NULL
    ON CONFLICT (name, slot) DO NOTHING
)
SELECT
FROM sm_lease
WHERE name = $1::text AND slot = 0 AND (SELECT has_room FROM seen)
FOR NO KEY UPDATE
