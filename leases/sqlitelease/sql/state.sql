-- What an attempt can learn without the write lock: a refusal by this answer
-- writes nothing and waits for no writer. A grant is never decided here.
-- ?1 name, ?2 owner, ?3 slots (0 = lease)
-- Returns whether the name is live as the other kind, whether the claim is
-- refused for holds of its own kind, and the microseconds until the first live
-- hold expires (null: there is none).
WITH
    clock (now) AS (
        SELECT CAST(round(unixepoch('now', 'subsec') * 1000) AS INTEGER) * 1000
    ),
    seen AS MATERIALIZED (
        SELECT
            now,
            (
                SELECT expires_at
                FROM sm_lease
                WHERE name = ?1 AND slot = 0 AND expires_at >= now
            ) AS lease_ends,
            (
                SELECT min(expires_at)
                FROM sm_lease INDEXED BY sm_lease_slot_ends
                WHERE name = ?1 AND slot > 0 AND expires_at >= now
            ) AS first_slot_ends,
            (SELECT max(0, coalesce(max(slot), 0)) FROM sm_lease WHERE name = ?1) AS places
        FROM clock
    )
SELECT
    CASE WHEN ?3 = 0 THEN first_slot_ends IS NOT NULL ELSE lease_ends IS NOT NULL END AS other_kind,
    CASE
        WHEN ?3 = 0 THEN EXISTS (
            SELECT 1
            FROM sm_lease
            WHERE name = ?1 AND slot = 0 AND holder <> ?2 AND lease_ends IS NOT NULL
        )
        -- As in acquire_semaphore.sql.
        WHEN EXISTS (
            SELECT 1
            FROM sm_lease INDEXED BY sm_lease_slot_holder
            WHERE name = ?1 AND slot > 0 AND holder = ?2 AND expires_at >= now
        ) THEN 0
        WHEN places < ?3 THEN 0
        WHEN places = ?3 AND EXISTS (
            SELECT 1
            FROM sm_lease INDEXED BY sm_lease_slot_ends
            WHERE name = ?1 AND slot > 0 AND expires_at < now
        ) THEN 0
        ELSE ?3 <= (
            SELECT count(*)
            FROM sm_lease INDEXED BY sm_lease_slot_ends
            WHERE name = ?1 AND slot > 0 AND expires_at >= now
        )
    END AS taken,
    min(coalesce(lease_ends, first_slot_ends), coalesce(first_slot_ends, lease_ends)) - now AS remaining
FROM seen
