-- Extends a hold that is live once the write lock is taken (R2, R3).
-- ?1 name, ?2 owner, ?3 fence (0 = any), ?4 slots (0 = lease), ?5 ttl in microseconds
WITH
    clock (now) AS (
        SELECT CAST(round(unixepoch('now', 'subsec') * 1000) AS INTEGER) * 1000
    )
UPDATE sm_lease
SET expires_at = (SELECT now FROM clock) + ?5
WHERE
    name = ?1
    AND slot = CASE
        WHEN ?4 = 0 THEN 0
        ELSE (
            SELECT slot
            FROM clock, sm_lease INDEXED BY sm_lease_slot_holder
            WHERE name = ?1 AND slot > 0 AND holder = ?2 AND expires_at >= now
        )
    END
    AND holder = ?2
    AND ?3 IN (0, fence)
    AND expires_at >= (SELECT now FROM clock)
