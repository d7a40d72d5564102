-- Grants the lease unless the name has a live hold of another owner or kind
-- (R1, R4, R12). A refused attempt only reads.
--
-- seen is as old as the statement, and the row of slot 0 may have to be waited
-- for. So the grant is made only if that row still has the fence that was
-- seen: every grant of a name changes it. Its liveness is tested after the
-- wait, by clock_timestamp(); a row that is this owner's live hold needs no
-- more than that. Liveness in seen is by statement_timestamp(),
-- which is no later than what it has seen: a hold counted as over can't have
-- been refreshed since.
--
-- $1 name, $2 owner, $3 ttl in milliseconds, $4 lock_timeout.
-- Returns fence (null: refused, or somebody was faster if no other owner's hold
-- was live), whether the live holds are of the other kind, how many are other
-- owners', and the milliseconds until the first live one ends.
WITH seen AS MATERIALIZED (
    SELECT
        max(fence) AS fence,
        max(fence) FILTER (WHERE slot = 0) AS head,
        count(*) FILTER (WHERE live) AS live,
        count(*) FILTER (WHERE live AND slot = 0 AND holder = $2) AS own,
        count(*) FILTER (WHERE live AND slot > 0) > 0 AS other_kind,
        min(expires_at) FILTER (WHERE live) AS first,
        set_config('lock_timeout', $4, true) AS lock_timeout
    FROM (
        SELECT slot, holder, fence, expires_at, expires_at > statement_timestamp() AS live
        FROM sm_lease
        WHERE name = $1
    ) AS rows
),
granted AS (
    INSERT INTO sm_lease AS l (name, slot, holder, fence, expires_at)
    SELECT
        $1, 0, $2,
        greatest(coalesce(seen.fence, 0) + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint),
        clock_timestamp() + $3::bigint * interval '1 millisecond'
    FROM seen
    WHERE seen.live = seen.own
    ON CONFLICT (name, slot) DO UPDATE
    SET
        holder = excluded.holder,
        fence = greatest(excluded.fence, l.fence + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint),
        expires_at = clock_timestamp() + $3::bigint * interval '1 millisecond'
    WHERE CASE
        WHEN l.expires_at > clock_timestamp() THEN l.holder = $2
        ELSE l.fence = (SELECT head FROM seen)
    END
    RETURNING l.fence
)
SELECT
    granted.fence,
    seen.other_kind,
    seen.live - seen.own,
    ceil(extract(epoch FROM seen.first - clock_timestamp()) * 1000)::bigint
FROM seen LEFT JOIN granted ON true
