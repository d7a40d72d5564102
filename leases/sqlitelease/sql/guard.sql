-- Changes nothing, but takes the write lock like any UPDATE, also when no row
-- matches, and only then reads the clock. Until the transaction ends nobody
-- can acquire, refresh or release.
-- ?1 name, ?2 owner, ?3 fence
WITH
    clock (now) AS (
        SELECT CAST(round(unixepoch('now', 'subsec') * 1000) AS INTEGER) * 1000
    )
UPDATE sm_lease
SET expires_at = expires_at
WHERE
    name = ?1
    AND slot = coalesce(
        (
            SELECT slot
            FROM clock, sm_lease INDEXED BY sm_lease_slot_holder
            WHERE name = ?1 AND slot > 0 AND holder = ?2 AND expires_at >= now
        ),
        0
    )
    AND holder = ?2
    AND fence = ?3
    AND expires_at >= (SELECT now FROM clock)
