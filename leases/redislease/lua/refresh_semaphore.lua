-- Extends the live hold of this owner and fence (R2, R3).
-- KEYS: name. ARGV: owner, fence (0: any), ttl in milliseconds.
-- Returns 1, or 0 when there is none.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local held = redis.pcall('ZMSCORE', KEYS[1], 'e' .. ARGV[1], 'f' .. ARGV[1])
if held.err then
    return string.find(held.err, 'WRONGTYPE', 1, true) and 0 or held
end
if not held[1] or tonumber(held[1]) <= now or (ARGV[2] ~= '0' and tonumber(held[2]) ~= -ARGV[2]) then
    return 0
end
-- A server that is out of memory refuses ZADD only as the first write.
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.max(redis.call('PTTL', KEYS[1]), ARGV[3])))
redis.call('ZADD', KEYS[1], string.format('%.0f', now + ARGV[3] * 1000), 'e' .. ARGV[1])
return 1
