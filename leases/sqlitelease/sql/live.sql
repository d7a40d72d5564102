-- How many live holds each of the names in the JSON array ?1 has.
WITH
    clock (now) AS (
        SELECT CAST(round(unixepoch('now', 'subsec') * 1000) AS INTEGER) * 1000
    )
SELECT
    watched.value,
    (
        SELECT count(*)
        FROM sm_lease, clock
        WHERE name = watched.value AND slot >= 0 AND expires_at >= now
    )
FROM json_each(?1) AS watched
