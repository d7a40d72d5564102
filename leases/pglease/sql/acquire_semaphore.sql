-- Grants a slot to an owner that has one, or while fewer than the caller's
-- slots are live (R4, R13), unless the name is live as a lease (R12). A new
-- hold takes the lowest slot that is not live. A refused attempt only reads.
--
-- As in acquire_lease.sql, the grant goes through the row of slot 0, which
-- keeps the latest fence: if another was granted since seen, it is not made.
-- A hold of this owner that is still live then is extended all the same.
--
-- $1 name, $2 owner, $3 ttl in milliseconds, $4 lock_timeout, $5 slots.
-- Returns as acquire_lease.sql does.
WITH seen AS MATERIALIZED (
    SELECT
        max(fence) AS fence,
        max(fence) FILTER (WHERE slot = 0) AS head,
        count(*) FILTER (WHERE live) AS live,
        max(slot) FILTER (WHERE live AND holder = $2) AS own,
        min(slot) FILTER (WHERE NOT live AND slot > 0) AS free,
        coalesce(max(slot) FILTER (WHERE slot > 0), 0) + 1 AS new,
        count(*) FILTER (WHERE live AND slot = 0) > 0 AS other_kind,
        min(expires_at) FILTER (WHERE live) AS first,
        set_config('lock_timeout', $4, true) AS lock_timeout
    FROM (
        SELECT slot, holder, fence, expires_at, expires_at > statement_timestamp() AS live
        FROM sm_lease
        WHERE name = $1
    ) AS rows
),
head AS (
    INSERT INTO sm_lease AS l (name, slot, holder, fence, expires_at)
    SELECT
        $1, 0, '',
        greatest(coalesce(seen.fence, 0) + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint),
        '-infinity'
    FROM seen
    WHERE NOT seen.other_kind AND (seen.own IS NOT NULL OR seen.live < $5::integer)
    ON CONFLICT (name, slot) DO UPDATE
    SET
        holder = '',
        fence = greatest(excluded.fence, l.fence + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint),
        expires_at = '-infinity'
    WHERE
        l.expires_at <= clock_timestamp()
        AND (l.fence = (SELECT head FROM seen) OR (SELECT own FROM seen) IS NOT NULL)
    RETURNING l.fence
),
granted AS (
    INSERT INTO sm_lease AS l (name, slot, holder, fence, expires_at)
    SELECT
        $1, coalesce(seen.own, seen.free, seen.new), $2, head.fence,
        clock_timestamp() + $3::bigint * interval '1 millisecond'
    FROM seen, head
    ON CONFLICT (name, slot) DO UPDATE
    SET
        holder = excluded.holder,
        fence = excluded.fence,
        expires_at = clock_timestamp() + $3::bigint * interval '1 millisecond'
    WHERE CASE
        WHEN (SELECT own FROM seen) IS NOT NULL THEN l.holder = $2 AND l.expires_at > clock_timestamp()
        ELSE l.expires_at <= clock_timestamp()
    END
    RETURNING l.fence
)
SELECT
    granted.fence,
    seen.other_kind,
    seen.live - (seen.own IS NOT NULL)::integer,
    ceil(extract(epoch FROM seen.first - clock_timestamp()) * 1000)::bigint
FROM seen LEFT JOIN granted ON true
