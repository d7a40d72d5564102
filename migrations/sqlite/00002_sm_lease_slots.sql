-- +goose Up
-- How a semaphore's free row and an owner's row are found among many. A lease
-- is in neither index.
CREATE INDEX IF NOT EXISTS sm_lease_slot_holder ON sm_lease (name, holder, expires_at) WHERE slot > 0;
CREATE INDEX IF NOT EXISTS sm_lease_slot_ends ON sm_lease (name, expires_at) WHERE slot > 0;

-- +goose Down
DROP INDEX IF EXISTS sm_lease_slot_holder;
DROP INDEX IF EXISTS sm_lease_slot_ends;
