-- What an attempt can learn without the write lock: a refusal by this answer
-- writes nothing and waits for no writer. A grant is never decided here.
-- ?1 name, ?2 owner, ?3 slots (0 = lease)
WITH
    clock (now) AS (
        SELECT CAST(round(unixepoch('now', 'subsec') * 1000) AS INTEGER) * 1000
    ),
    live AS (
        SELECT slot, holder, expires_at - now AS remaining
        FROM sm_lease, clock
        WHERE name = ?1 AND slot >= 0 AND expires_at >= now
    )
SELECT
    count(*) FILTER (WHERE (slot > 0) <> (?3 > 0)) AS other_kind,
    count(*) FILTER (WHERE holder = ?2) AS own,
    count(*) AS live,
    coalesce(min(remaining), 0) AS remaining
FROM live
