-- Grants the lease unless the name has a live hold of another owner or of the
-- other kind (R1, R4, R12). One statement: it has the write lock before it
-- reads, and SQLite reads its clock once for each step, so after the wait for
-- that lock. No row: refused, and nothing is written.
-- ?1 name, ?2 owner, ?3 ttl in microseconds, ?4 this process's clock in
-- microseconds, which only adds the digits that SQLite's clock lacks: without
-- them a fence would repeat when its row is deleted within the millisecond.
WITH
    clock (now) AS (
        SELECT CAST(round(unixepoch('now', 'subsec') * 1000) AS INTEGER) * 1000
    )
INSERT INTO sm_lease (name, slot, holder, fence, expires_at)
SELECT
    ?1,
    0,
    ?2,
    max(
        1 + coalesce(
            (SELECT fence FROM sm_lease WHERE name = ?1 AND slot = -1),
            (SELECT max(fence) FROM sm_lease WHERE name = ?1 AND slot > 0),
            0
        ),
        1 + coalesce((SELECT fence FROM sm_lease WHERE name = ?1 AND slot = 0), 0),
        now,
        min(?4, now + 999)
    ),
    now + ?3
FROM clock
WHERE
    NOT EXISTS (
        SELECT 1
        FROM sm_lease INDEXED BY sm_lease_slot_ends
        WHERE name = ?1 AND slot > 0 AND expires_at >= now
    )
    AND NOT EXISTS (
        SELECT 1
        FROM sm_lease
        WHERE name = ?1 AND slot = 0 AND expires_at >= now AND holder <> ?2
    )
ON CONFLICT (name, slot) DO UPDATE
SET holder = excluded.holder, fence = excluded.fence, expires_at = excluded.expires_at
RETURNING fence
