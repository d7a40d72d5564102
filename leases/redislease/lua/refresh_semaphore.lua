-- Extends the live hold of this owner and fence (R2, R3).
-- KEYS: name, owners. ARGV: owner, fence (0: any), ttl in milliseconds.
-- Returns 1, or 0 when there is none.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local expiry = redis.pcall('ZSCORE', KEYS[1], ARGV[1])
if type(expiry) ~= 'string' or tonumber(expiry) <= now then
    return 0
end
if ARGV[2] ~= '0' and redis.call('HGET', KEYS[2], ARGV[1]) ~= ARGV[2] then
    return 0
end
redis.call('ZADD', KEYS[1], string.format('%.0f', now + ARGV[3] * 1000), ARGV[1])
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[3]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[3])
    redis.call('PEXPIRE', KEYS[2], ARGV[3])
end
return 1
