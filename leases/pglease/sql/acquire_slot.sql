-- Grants a slot to an owner that has one, or while fewer than the caller's slots
-- are held (R4, R13), unless the name is live as a lease (R12). A refused attempt
-- only reads.
--
-- As in acquire_lease.sql, the grant is made under the lock of the head, the row
-- of slot 0, and only if nobody has been granted since state was read; and a
-- hold that lapsed is over only if its row can be locked. A hold with -infinity
-- was released, and nobody can refresh it. So unended, less the holds that were
-- found to be over, is no less than the number of live ones. Those found to be
-- over are marked as released, so that the next attempt need not lock them.
--
-- A new hold takes the row of one that is over, whatever its number; the rows of
-- a name are as many as were ever held at once.
--
-- $1 name, $2 owner, $3 ttl in milliseconds, $4 slots
-- Returns as acquire_lease.sql does.
WITH
state AS MATERIALIZED (
    SELECT
        coalesce(max(fence), 0) AS fence,
        max(fence) FILTER (WHERE slot = 0) AS head,
        count(*) FILTER (WHERE slot = 0 AND live) > 0 AS other_kind,
        count(*) FILTER (WHERE slot > 0 AND expires_at > '-infinity') AS unended,
        count(*) FILTER (WHERE slot > 0 AND expires_at > '-infinity' AND holder = $2::text) > 0 AS own,
        count(*) FILTER (WHERE slot = 0 AND live) = 0
        AND (
            count(*) FILTER (WHERE slot > 0 AND live) < $4::integer
            OR count(*) FILTER (WHERE slot > 0 AND live AND holder = $2::text) > 0
        ) AS has_room,
        coalesce(max(slot), 0) + 1 AS unused,
        min(expires_at) FILTER (WHERE live) AS first
    FROM (
        SELECT slot, holder, fence, expires_at, expires_at > clock_timestamp() AS live
        FROM sm_lease
        WHERE name = $1::text
    ) AS seen
),
head AS MATERIALIZED (
    SELECT fence
    FROM sm_lease
    WHERE
        name = $1::text
        AND slot = 0
        AND expires_at <= clock_timestamp()
        AND (SELECT has_room FROM state)
    FOR UPDATE SKIP LOCKED
),
turn AS MATERIALIZED (
    SELECT state.* FROM state WHERE state.head = (SELECT fence FROM head)
),
own AS MATERIALIZED (
    SELECT slot, expires_at
    FROM sm_lease
    WHERE
        name = $1::text
        AND slot > 0
        AND holder = $2::text
        AND expires_at > '-infinity'
        AND (SELECT own FROM turn)
    FOR UPDATE SKIP LOCKED
),
lapsed AS MATERIALIZED (
    SELECT slot, fence
    FROM sm_lease
    WHERE
        name = $1::text
        AND slot > 0
        AND holder <> $2::text
        AND expires_at > '-infinity'
        AND expires_at <= clock_timestamp()
        AND (SELECT unended > 0 FROM turn)
    LIMIT (SELECT greatest(unended - $4::integer + 1, 1) FROM turn)
    FOR UPDATE SKIP LOCKED
),
released AS MATERIALIZED (
    SELECT slot
    FROM sm_lease
    WHERE
        name = $1::text
        AND slot > 0
        AND expires_at = '-infinity'
        AND (SELECT unused > 1 FROM turn)
        AND NOT EXISTS (SELECT FROM own)
        AND NOT EXISTS (SELECT FROM lapsed)
    LIMIT 1
    FOR UPDATE SKIP LOCKED
),
place AS MATERIALIZED (
    SELECT
        coalesce(
            (SELECT min(slot) FROM own),
            (SELECT min(slot) FROM lapsed),
            (SELECT slot FROM released),
            turn.unused
        ) AS slot,
        greatest(turn.fence + 1, floor(extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS fence
    FROM turn
    WHERE
        turn.own = EXISTS (SELECT FROM own)
        AND (
            EXISTS (SELECT FROM own WHERE expires_at > clock_timestamp())
            OR turn.unended - (SELECT count(*) FROM own) - (SELECT count(*) FROM lapsed) < $4::integer
        )
),
granted AS (
    INSERT INTO sm_lease (name, slot, holder, fence, expires_at)
    SELECT $1::text, slot, $2::text, fence, clock_timestamp() + $3::bigint * interval '1 millisecond'
    FROM place
    UNION ALL
    SELECT $1::text, 0, '', fence, '-infinity'
    FROM place
    UNION ALL
    SELECT $1::text, lapsed.slot, '', lapsed.fence, '-infinity'
    FROM lapsed, place
    WHERE lapsed.slot <> place.slot
    ON CONFLICT (name, slot) DO UPDATE -- each of them is locked by now
    SET holder = excluded.holder, fence = excluded.fence, expires_at = excluded.expires_at
)
SELECT
    place.fence,
    state.other_kind,
    place.fence IS NULL
    AND state.has_room
    AND NOT coalesce((SELECT turn.own = EXISTS (SELECT FROM own) FROM turn), false) AS again,
    coalesce(ceil(extract(epoch FROM state.first - clock_timestamp()) * 1000), 0)::bigint AS remaining
FROM state LEFT JOIN place ON true
