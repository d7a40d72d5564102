-- Grants a slot if the owner has one, or if fewer than ?5 are live (R4, R13),
-- unless the name is live as a lease (R12). A new hold takes the lowest slot
-- that is not live, so the rows of a name are as many as were ever live at
-- once. Slot -1 keeps the fence of the latest grant. As in acquire_lease.sql,
-- the write lock comes first and the clock after it. No row: refused, and
-- nothing is written.
-- ?1 name, ?2 owner, ?3 ttl in microseconds, ?4 this process's clock in
-- microseconds (see acquire_lease.sql), ?5 slots
WITH
    clock (now) AS (
        SELECT CAST(round(unixepoch('now', 'subsec') * 1000) AS INTEGER) * 1000
    ),
    hold AS MATERIALIZED (
        SELECT slot, holder, fence, slot >= 0 AND expires_at >= now AS live
        FROM sm_lease, clock
        WHERE name = ?1
    ),
    place (slot, fence) AS MATERIALIZED (
        SELECT
            coalesce(
                (SELECT slot FROM hold WHERE live AND holder = ?2),
                (SELECT min(slot) FROM hold WHERE NOT live AND slot > 0),
                (SELECT coalesce(max(slot), 0) + 1 FROM hold WHERE slot > 0)
            ),
            max(
                (SELECT coalesce(max(fence), 0) + 1 FROM hold),
                now,
                min(?4, now + 999)
            )
        FROM clock
        WHERE
            NOT EXISTS (SELECT 1 FROM hold WHERE live AND slot = 0)
            AND (
                EXISTS (SELECT 1 FROM hold WHERE live AND holder = ?2)
                OR (SELECT count(*) FROM hold WHERE live) < ?5
            )
    )
INSERT INTO sm_lease (name, slot, holder, fence, expires_at)
SELECT ?1, slot, ?2, fence, now + ?3
FROM place, clock
UNION ALL
SELECT ?1, -1, '', fence, 0
FROM place
WHERE true
ON CONFLICT (name, slot) DO UPDATE
SET holder = excluded.holder, fence = excluded.fence, expires_at = excluded.expires_at
RETURNING fence
