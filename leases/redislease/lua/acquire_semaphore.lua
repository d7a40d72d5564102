-- Grants a slot to an owner that has one, or while fewer than the caller's
-- slots are live (R4, R13). An owner's score is its expiry in microseconds; it
-- is live while that is later than the clock. The keys expire with the last
-- hold; a string in the name's key is a live lease (R12).
-- KEYS: name, fence, owners. ARGV: owner, ttl and fence's ttl in milliseconds,
-- slots. Returns the fence; or 0: in use as a lease; or minus the milliseconds
-- that the holder that expires first has left.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local text = string.format('%.0f', now)
local expired = redis.pcall('ZRANGEBYSCORE', KEYS[1], '-inf', text, 'LIMIT', 0, 100)
if expired.err then
    return 0
end
if #expired > 0 then
    redis.call('ZREM', KEYS[1], unpack(expired))
    redis.call('HDEL', KEYS[3], unpack(expired))
end
local previous = 0
local expiry = redis.call('ZSCORE', KEYS[1], ARGV[1])
if expiry and tonumber(expiry) > now then
    previous = tonumber(redis.call('HGET', KEYS[3], ARGV[1])) or 0
elseif redis.call('ZCOUNT', KEYS[1], '(' .. text, '+inf') >= tonumber(ARGV[4]) then
    local first = redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. text, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    return -math.max(math.ceil((first[2] - now) / 1000), 1)
end
local kept = redis.call('SET', KEYS[2], text, 'PX', ARGV[3], 'GET')
local fence = math.max(now, previous + 1, (kept and tonumber(string.match(kept, '^%d+')) or 0) + 1)
if fence > now then
    redis.call('SET', KEYS[2], string.format('%.0f', fence), 'PX', ARGV[3])
end
redis.call('ZADD', KEYS[1], string.format('%.0f', now + ARGV[2] * 1000), ARGV[1])
redis.call('HSET', KEYS[3], ARGV[1], string.format('%.0f', fence))
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    redis.call('PEXPIRE', KEYS[3], ARGV[2])
end
return fence
