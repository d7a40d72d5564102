-- Grants a slot to an owner that has one, or while fewer than the caller's
-- slots are live (R4, R13). A holder has two members in the name's sorted set:
-- 'e' and its owner, scored by the expiry in microseconds, and 'f' and its
-- owner, by minus the fence. It is live while its expiry is later than the
-- clock. The key expires with the last hold.
-- KEYS: name, fence. ARGV: owner, ttl and the fence's ttl in milliseconds, slots.
-- Returns the fence; or 0: in use as a lease; or minus the milliseconds that
-- the holder that expires first has left.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local after = '(' .. string.format('%.0f', now)
local expired = redis.pcall('ZRANGEBYSCORE', KEYS[1], 0, string.format('%.0f', now), 'LIMIT', 0, 100)
if expired.err then
    if not string.find(expired.err, 'WRONGTYPE', 1, true) then
        return expired
    end
    return redis.call('TYPE', KEYS[1]).ok == 'string' and 0 or foreign(KEYS[1])
end
if #expired > 0 then
    for i = 1, #expired do
        expired[#expired + 1] = 'f' .. string.sub(expired[i], 2)
    end
    redis.call('ZREM', KEYS[1], unpack(expired))
end
local held = redis.call('ZMSCORE', KEYS[1], 'e' .. ARGV[1], 'f' .. ARGV[1])
local previous = 0
if held[1] and tonumber(held[1]) > now then
    previous = -(tonumber(held[2] or 0))
elseif redis.call('ZCOUNT', KEYS[1], after, '+inf') >= tonumber(ARGV[4]) then
    local first = redis.call('ZRANGEBYSCORE', KEYS[1], after, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    return -math.max(math.ceil((first[2] - now) / 1000), 1)
end
local fence, text = next_fence(KEYS[2], ARGV[3], now, previous)
redis.call('ZADD', KEYS[1], string.format('%.0f', now + ARGV[2] * 1000), 'e' .. ARGV[1], '-' .. text, 'f' .. ARGV[1])
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return fence
