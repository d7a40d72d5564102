-- Grants a slot to an owner that has one, or while fewer than the caller's slots
-- are held (R4, R13), unless the name is live as a lease (R12). A refused attempt
-- only reads.
--
-- A new hold takes the row of one that is over, whatever its number; the numbers
-- go from 1 to places. Each row is at most one live hold. So a row that is over,
-- or is not there yet, leaves room for one among as many slots as there are
-- places, and nothing has to be counted. That is only needed if there are more
-- places than the caller's slots, or if rows were deleted by hand.
--
-- As in acquire_lease.sql, the grant is made under the lock of the head, the row
-- of slot 0, and only if nobody has been granted since state was read; and a
-- hold that lapsed is over only if its row can be locked. A hold with -infinity
-- was released, and nobody can refresh it. So unended, less the holds that were
-- found to be over, is no less than the number of live ones. Those found to be
-- over are marked as released, so that the next attempt need not lock them.
--
-- $1 name, $2 owner, $3 ttl in milliseconds, $4 slots
-- Returns as acquire_lease.sql does.
WITH
clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
),
state AS MATERIALIZED (
    SELECT
        clock.now,
        head.fence AS head,
        coalesce(head.fence, (SELECT max(fence) FROM sm_lease WHERE name = $1::text), 0) AS fence,
        coalesce(head.expires_at > clock.now, false) AS other_kind,
        coalesce((SELECT max(slot) FROM sm_lease WHERE name = $1::text AND slot > 0), 0) AS places,
        (
            SELECT slot_ends
            FROM sm_lease
            WHERE name = $1::text AND slot_ends IS NOT NULL
            ORDER BY slot_ends
            LIMIT 1
        ) AS first_end,
        coalesce(
            (SELECT slot_ends FROM sm_lease WHERE name = $1::text AND slot_holder = $2::text LIMIT 1),
            '-infinity'
        ) AS own_end
    FROM clock LEFT JOIN sm_lease AS head ON head.name = $1::text AND head.slot = 0
),
seen AS MATERIALIZED (
    SELECT
        state.*,
        CASE
            WHEN other_kind THEN false
            WHEN places < $4::integer OR own_end > now THEN true
            WHEN places = $4::integer AND first_end <= now THEN true
            ELSE $4::integer > (
                SELECT count(*)
                FROM (
                    SELECT
                    FROM sm_lease
                    WHERE name = $1::text AND slot_ends > now
                    ORDER BY slot_ends
                    LIMIT $4::integer
                ) AS live
            )
        END AS has_room
    FROM state
),
head AS MATERIALIZED (
    SELECT fence
    FROM sm_lease
    WHERE
        name = $1::text
        AND slot = 0
        AND expires_at <= (SELECT now FROM seen WHERE has_room)
    FOR UPDATE SKIP LOCKED
),
turn AS MATERIALIZED (
    SELECT
        seen.*,
        CASE
            WHEN places > $4::integer
                THEN (SELECT count(*) FROM sm_lease WHERE name = $1::text AND slot_ends > '-infinity')
            ELSE 0
        END AS unended
    FROM seen
    WHERE seen.head = (SELECT fence FROM head)
),
own AS MATERIALIZED (
    SELECT slot, expires_at
    FROM sm_lease
    WHERE
        name = $1::text
        AND slot_holder = $2::text
        AND (SELECT own_end > '-infinity' FROM turn)
    FOR UPDATE SKIP LOCKED
),
over AS MATERIALIZED (
    SELECT slot
    FROM sm_lease
    WHERE
        name = $1::text
        AND slot_ends <= (SELECT now FROM turn)
        AND NOT EXISTS (SELECT FROM own)
    ORDER BY slot_ends
    LIMIT 1
    FOR UPDATE SKIP LOCKED
),
lapsed AS MATERIALIZED (
    SELECT slot, fence
    FROM sm_lease
    WHERE
        name = $1::text
        AND slot_ends > '-infinity'
        AND slot_ends <= (SELECT now FROM turn)
        AND slot_holder <> $2::text
    LIMIT (SELECT greatest(unended - $4::integer + 1, 0) FROM turn)
    FOR UPDATE SKIP LOCKED
),
place AS MATERIALIZED (
    SELECT
        coalesce((SELECT min(slot) FROM own), (SELECT slot FROM over), turn.places + 1) AS slot,
        greatest(turn.fence + 1, floor(extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS fence
    FROM turn
    WHERE
        (turn.own_end > '-infinity') = EXISTS (SELECT FROM own)
        AND CASE
            WHEN EXISTS (SELECT FROM own WHERE expires_at > clock_timestamp()) THEN true
            WHEN turn.places < $4::integer THEN true
            WHEN turn.places > $4::integer
                THEN turn.unended - (SELECT count(*) FROM own) - (SELECT count(*) FROM lapsed) < $4::integer
            WHEN EXISTS (SELECT FROM own) OR EXISTS (SELECT FROM over) THEN true
            ELSE $4::integer > (
                SELECT count(*) FROM sm_lease WHERE name = $1::text AND slot_ends > '-infinity'
            )
        END
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
    seen.other_kind,
    place.fence IS NULL
    AND seen.has_room
    AND NOT coalesce((SELECT (turn.own_end > '-infinity') = EXISTS (SELECT FROM own) FROM turn), false) AS again,
    coalesce(
        ceil(
            extract(
                epoch FROM (
                    SELECT slot_ends
                    FROM sm_lease
                    WHERE name = $1::text AND slot_ends > seen.now
                    ORDER BY slot_ends
                    LIMIT 1
                ) - clock_timestamp()
            ) * 1000
        ),
        0
    )::bigint AS remaining
FROM seen LEFT JOIN place ON true
