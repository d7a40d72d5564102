-- Grants the lease unless another owner's value is there: the key expires with
-- the hold, so that what is there is live (R1, R2).
-- KEYS: name, fence. ARGV: owner, ttl and the fence's ttl in milliseconds.
-- Returns the fence; or 0: in use as a semaphore; or minus the milliseconds
-- that the holder has left, -2^53 if it has no expiry.
local held = redis.pcall('GET', KEYS[1])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local previous = 0
if type(held) == 'table' then
    if not string.find(held.err, 'WRONGTYPE', 1, true) then
        return held
    end
    if redis.call('TYPE', KEYS[1]).ok ~= 'zset' then
        return foreign(KEYS[1])
    end
    if redis.call('ZCOUNT', KEYS[1], '(' .. string.format('%.0f', now), '+inf') > 0 then
        return 0
    end
elseif held then
    local fence, owner = string.match(held, '^(%d+):(.+)$')
    if not fence then
        return foreign(KEYS[1])
    end
    if owner ~= ARGV[1] then
        local left = redis.call('PTTL', KEYS[1])
        return left < 0 and -2 ^ 53 or -math.max(left, 1)
    end
    previous = tonumber(fence)
end
local fence, text = next_fence(KEYS[2], ARGV[3], now, previous)
redis.call('SET', KEYS[1], text .. ':' .. ARGV[1], 'PX', ARGV[2])
return fence
