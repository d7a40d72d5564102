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
state AS MATERIALIZED (
    SELECT
        coalesce(max(fence), 0) AS fence,
        max(fence) FILTER (WHERE slot = 0) AS head,
        count(*) FILTER (WHERE slot > 0 AND live) > 0 AS other_kind,
        count(*) FILTER (WHERE slot > 0 AND expires_at > '-infinity') AS unended,
        count(*) FILTER (WHERE slot = 0 AND live AND holder <> $2::text) > 0 AS taken,
        count(*) FILTER (WHERE slot = 0 AND live AND holder = $2::text) > 0 AS own,
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
        AND (holder = $2::text OR expires_at <= clock_timestamp())
        AND (SELECT NOT other_kind AND NOT taken FROM state)
    FOR UPDATE SKIP LOCKED
),
lapsed AS MATERIALIZED (
    SELECT slot
    FROM sm_lease
    WHERE
        name = $1::text
        AND slot > 0
        AND expires_at > '-infinity'
        AND expires_at <= clock_timestamp()
        AND (SELECT unended > 0 AND NOT other_kind AND NOT taken FROM state)
    FOR UPDATE SKIP LOCKED
),
granted AS (
    INSERT INTO sm_lease AS l (name, slot, holder, fence, expires_at)
    SELECT
        $1::text,
        0,
        $2::text,
        greatest(state.fence + 1, floor(extract(epoch FROM clock_timestamp()) * 1000000)::bigint),
        clock_timestamp() + $3::bigint * interval '1 millisecond'
    FROM state
    WHERE
        NOT other_kind
        AND NOT taken
        AND (head IS NULL OR head = (SELECT fence FROM head))
        AND unended = (SELECT count(*) FROM lapsed)
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
    state.other_kind,
    granted.fence IS NULL
    AND NOT state.other_kind
    AND NOT state.taken AS again,
    coalesce(ceil(extract(epoch FROM state.first - clock_timestamp()) * 1000), 0)::bigint AS remaining
FROM state LEFT JOIN granted ON true
