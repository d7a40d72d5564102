-- Grants a slot if the owner has one, or if fewer than ?5 are live (R4, R13),
-- unless the name is live as a lease (R12). Slot -1 keeps the fence of the
-- latest grant. As in acquire_lease.sql, the write lock comes first and the
-- clock after it. No row: refused, and nothing is written.
--
-- A new hold takes a slot that is not live, so the rows of a name are as many
-- as were ever live at once; their numbers go from 1 to places. A row is at most
-- one live hold. So one that is not live, or is not there yet, leaves room
-- among as many slots as there are places, and nothing has to be counted. That
-- is only needed with more places, or if rows were deleted by hand.
-- ?1 name, ?2 owner, ?3 ttl in microseconds, ?4 this process's clock in
-- microseconds (see acquire_lease.sql), ?5 slots
WITH
    clock (now) AS (
        SELECT CAST(round(unixepoch('now', 'subsec') * 1000) AS INTEGER) * 1000
    ),
    seen AS MATERIALIZED (
        SELECT
            now,
            (
                SELECT slot
                FROM sm_lease INDEXED BY sm_lease_slot_holder
                WHERE name = ?1 AND slot > 0 AND holder = ?2 AND expires_at >= now
            ) AS own,
            (
                SELECT slot
                FROM sm_lease INDEXED BY sm_lease_slot_ends
                WHERE name = ?1 AND slot > 0 AND expires_at < now
                ORDER BY expires_at
                LIMIT 1
            ) AS ended,
            (SELECT max(0, coalesce(max(slot), 0)) FROM sm_lease WHERE name = ?1) AS places
        FROM clock
    ),
    place (slot, fence) AS MATERIALIZED (
        SELECT
            coalesce(own, ended, places + 1),
            max(
                1 + coalesce(
                    (SELECT fence FROM sm_lease WHERE name = ?1 AND slot = -1),
                    (SELECT max(fence) FROM sm_lease WHERE name = ?1 AND slot > 0),
                    0
                ),
                1 + coalesce((SELECT fence FROM sm_lease WHERE name = ?1 AND slot = 0), 0),
                now,
                min(?4, now + 999)
            )
        FROM seen
        WHERE
            NOT EXISTS (SELECT 1 FROM sm_lease WHERE name = ?1 AND slot = 0 AND expires_at >= now)
            AND CASE
                WHEN own IS NOT NULL OR places < ?5 THEN 1
                WHEN places = ?5 AND ended IS NOT NULL THEN 1
                ELSE ?5 > (
                    SELECT count(*)
                    FROM sm_lease INDEXED BY sm_lease_slot_ends
                    WHERE name = ?1 AND slot > 0 AND expires_at >= now
                )
            END
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
