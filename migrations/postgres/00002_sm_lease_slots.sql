-- +goose Up
-- How a semaphore's free row and an owner's row are found among many, by index.
-- slot_holder is the holder of a semaphore's hold that was not released,
-- slot_ends the expires_at of a semaphore's row. Both are always null for a
-- lease: so the indexes cost it nothing, and its updates stay HOT.
ALTER TABLE sm_lease
    ADD COLUMN IF NOT EXISTS slot_holder text COLLATE "C"
        GENERATED ALWAYS AS (CASE WHEN slot > 0 AND expires_at > '-infinity' THEN holder END) STORED,
    ADD COLUMN IF NOT EXISTS slot_ends timestamptz
        GENERATED ALWAYS AS (CASE WHEN slot > 0 THEN expires_at END) STORED;
CREATE INDEX IF NOT EXISTS sm_lease_slot_holder ON sm_lease (name, slot_holder) WHERE slot_holder IS NOT NULL;
CREATE INDEX IF NOT EXISTS sm_lease_slot_ends ON sm_lease (name, slot_ends) WHERE slot_ends IS NOT NULL;

-- +goose Down
ALTER TABLE sm_lease DROP COLUMN IF EXISTS slot_holder, DROP COLUMN IF EXISTS slot_ends;
