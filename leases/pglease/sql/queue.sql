-- Waits for the grants of this name that are under way, so that the attempt,
-- which is the next statement of the same transaction, sees them and is not
-- overtaken. It decides nothing. If the name is surely busy it only reads.
--
-- Guard's lock on the row does not conflict, but for one in a transaction that is
-- repeatable read or serializable: lock_timeout bounds that wait.
-- $1 name, $2 owner, $3 slots (0: lease)
WITH
state AS MATERIALIZED (
    SELECT
        coalesce(max(fence), 0) AS fence,
        count(*) FILTER (WHERE slot = 0) > 0 AS has_head,
        count(*) FILTER (WHERE slot = 0 AND live AND NOT ($3::integer = 0 AND holder = $2::text)) = 0
        AND count(*) FILTER (WHERE slot > 0 AND live AND NOT ($3::integer > 0 AND holder = $2::text))
            < greatest($3::integer, 1) AS has_room,
        set_config('lock_timeout', '1s', true) AS lock_timeout
    FROM (
        SELECT slot, holder, fence, expires_at > clock_timestamp() AS live
        FROM sm_lease
        WHERE name = $1::text
    ) AS seen
),
made AS (
    INSERT INTO sm_lease (name, slot, holder, fence, expires_at)
    SELECT $1::text, 0, '', fence, '-infinity'
    FROM state
    WHERE has_room AND NOT has_head
    ON CONFLICT (name, slot) DO NOTHING
)
SELECT
FROM sm_lease
WHERE name = $1::text AND slot = 0 AND (SELECT has_room FROM state)
FOR NO KEY UPDATE
