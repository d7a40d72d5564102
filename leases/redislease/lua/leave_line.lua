-- Gives the place of a ticket up, and its turn to the next.
-- KEYS: line. ARGV: ticket.
-- Returns 1, or 0 when it has no place.
local now = clock()
local score = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not score then
    return 0
end
redis.call('ZREM', KEYS[1], ARGV[1])
score = tonumber(score)
if score < 0 and score > now - epoch then
    call_first(KEYS[1], now)
end
return 1
