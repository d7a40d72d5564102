-- +goose Up
-- A lease is the row of slot 0. A semaphore's holds are the rows of slots 1 and
-- up; its row of slot 0 has no holder and keeps the fence of the latest grant.
-- A hold is live while expires_at is later than the clock. Rows are not deleted
-- by normal work: they keep the fence.
CREATE TABLE IF NOT EXISTS sm_lease (
    name       text COLLATE "C" NOT NULL,
    slot       integer          NOT NULL,
    holder     text COLLATE "C" NOT NULL,
    fence      bigint           NOT NULL,
    expires_at timestamptz      NOT NULL,
    PRIMARY KEY (name, slot)
) WITH (
    -- Room for HOT updates; no index has a column that changes.
    fillfactor = 50,
    -- Names in use are few and their rows change all the time.
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 0
);

-- +goose Down
DROP TABLE IF EXISTS sm_lease;
