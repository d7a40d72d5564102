-- +goose Up
-- A lease is the row of slot 0. A semaphore's holds are the rows of slots 1 and
-- up; its row of slot -1 has no holder and keeps the fence of the latest grant.
-- expires_at is in microseconds since 1970. Rows are not deleted by normal
-- work: they keep the fence.
CREATE TABLE IF NOT EXISTS sm_lease (
    name       TEXT    NOT NULL,
    slot       INTEGER NOT NULL,
    holder     TEXT    NOT NULL,
    fence      INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (name, slot)
) WITHOUT ROWID;

-- +goose Down
DROP TABLE IF EXISTS sm_lease;
