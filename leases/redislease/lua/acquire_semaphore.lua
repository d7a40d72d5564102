-- Grants a slot to an owner that has one, or while fewer than the caller's
-- slots are live (R4, R13). A holder has two members in the name's sorted set:
-- 'e' and its owner, scored by the expiry in microseconds, and 'f' and its
-- owner, by minus the fence. It is live while its expiry is later than the
-- clock. The key expires with the last hold.
-- KEYS: name, fence, line. ARGV: owner, ttl and the fence's ttl in
-- milliseconds, slots; and of a process in line its ticket, and '1' when it waits again.
-- Returns the fence; or 0: in use as a lease; or minus the milliseconds after
-- which to try again, -2^53 if that is unknown.
local now, text = clock()
local expired = redis.pcall('ZRANGEBYSCORE', KEYS[1], 0, text, 'LIMIT', 0, 100)
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
else
    local free = ARGV[4] - redis.call('ZCOUNT', KEYS[1], '(' .. text, '+inf')
    if free <= 0 then
        wait_in(KEYS[3], ARGV[5], now)
        local first = redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. text, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
        return -math.max(math.ceil((first[2] - now) / 1000), 1)
    end
    if not may_have(KEYS[3], ARGV[5], now, free) then
        wait_in(KEYS[3], ARGV[5], now)
        return not_yet(ARGV[5])
    end
end
local fence = next_fence(KEYS[2], ARGV[3], now, text, previous)
redis.call('ZADD', KEYS[1], now + ARGV[2] * 1000, 'e' .. ARGV[1], '-' .. fence, 'f' .. ARGV[1])
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
leave(KEYS[3], ARGV[5], ARGV[6], now)
return fence
