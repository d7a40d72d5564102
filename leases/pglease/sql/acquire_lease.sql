-- Grants the lease unless the name has a live hold of another owner or of the
-- other kind (R1, R4, R12). A refused attempt only reads.
--
-- The row of slot 0 is the head of its name: every grant, of either kind, gives
-- it a new fence. state is as old as the statement. So the grant is made under
-- the head's lock, and only if its fence is still the one in state: then nobody
-- has been granted since. A semaphore's hold that state shows as lapsed may be
-- refreshed at this moment; it is over only if its row can be locked. SKIP
-- LOCKED: a hold that lapsed inside a Guard is busy until that transaction
-- ends, and nobody waits for it. Clocks are read after the locks.
--
-- $1 name, $2 owner, $3 ttl in milliseconds
-- Returns the fence (null: refused), whether the name is live as the other kind,
-- whether it may be had at once behind queue.sql (a row was locked, or somebody was
-- faster), and the milliseconds until the first live hold ends.
WITH
clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
),
state AS MATERIALIZED (
    SELECT
        clock.now,
        head.fence AS head,
        coalesce(head.fence, (SELECT max(fence) FROM sm_lease WHERE name = $1::text), 0) AS fence,
        coalesce(head.expires_at > clock.now AND head.holder <> $2::text, false) AS taken,
        CASE WHEN head.expires_at > clock.now THEN head.expires_at END AS ends,
        coalesce(
            (
                SELECT slot_ends
                FROM sm_lease
                WHERE name = $1::text AND slot_ends IS NOT NULL
                ORDER BY slot_ends DESC
                LIMIT 1
            ),
            '-infinity'
        ) AS last_slot_ends
    FROM clock LEFT JOIN sm_lease AS head ON head.name = $1::text AND head.slot = 0
),
free AS MATERIALIZED (
    SELECT * FROM state WHERE NOT taken AND last_slot_ends <= now
),
head AS MATERIALIZED (
    SELECT fence
    FROM sm_lease
    WHERE
        name = $1::text
        AND slot = 0
        AND (holder = $2::text OR expires_at <= (SELECT now FROM free))
        AND EXISTS (SELECT FROM free)
    FOR UPDATE SKIP LOCKED
),
lapsed AS MATERIALIZED (
    SELECT slot
    FROM sm_lease
    WHERE
        name = $1::text
        AND slot_ends > '-infinity'
        AND slot_ends <= (SELECT last_slot_ends FROM free)
    FOR UPDATE SKIP LOCKED
),
granted AS (
    INSERT INTO sm_lease AS l (name, slot, holder, fence, expires_at)
    SELECT
        $1::text,
        0,
        $2::text,
        greatest(free.fence + 1, floor(extract(epoch FROM clock_timestamp()) * 1000000)::bigint),
        clock_timestamp() + $3::bigint * interval '1 millisecond'
    FROM free
    WHERE
        (head IS NULL OR head = (SELECT fence FROM head))
        AND CASE
            WHEN last_slot_ends = '-infinity' THEN true
            ELSE (SELECT count(*) FROM lapsed)
                = (SELECT count(*) FROM sm_lease WHERE name = $1::text AND slot_ends > '-infinity')
        END
    ON CONFLICT (name, slot) DO UPDATE
    SET
        holder = excluded.holder,
        fence = excluded.fence,
        expires_at = clock_timestamp() + $3::bigint * interval '1 millisecond'
    WHERE (SELECT head IS NOT NULL FROM state) -- else somebody made the row just now
    RETURNING l.fence
)
SELECT
    granted.fence,
    state.last_slot_ends > state.now AS other_kind,
    granted.fence IS NULL
    AND EXISTS (SELECT FROM free) AS again,
    coalesce(ceil(extract(epoch FROM state.ends - clock_timestamp()) * 1000), 0)::bigint AS remaining
FROM state LEFT JOIN granted ON true
