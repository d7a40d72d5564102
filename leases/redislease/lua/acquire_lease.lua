-- Grants the lease unless another owner's value is there: the key expires with
-- the hold, so that what is there is live (R1, R2). The fence is larger than
-- the one kept and the one held, and than the clock in microseconds (R5).
-- KEYS: name, fence, owners. ARGV: owner, ttl and fence's ttl in milliseconds.
-- Returns the fence; or 0: in use as a semaphore; or minus the milliseconds
-- that the holder has left.
local held = redis.pcall('GET', KEYS[1])
local previous = 0
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if type(held) == 'table' then
    if redis.call('TYPE', KEYS[1]).ok ~= 'zset' or redis.call('ZCOUNT', KEYS[1], '(' .. string.format('%.0f', now), '+inf') > 0 then
        return 0
    end
    redis.call('DEL', KEYS[1], KEYS[3])
elseif held then
    local colon = string.find(held, ':', 1, true)
    if string.sub(held, colon + 1) ~= ARGV[1] then
        return -math.max(redis.call('PTTL', KEYS[1]), 1)
    end
    previous = tonumber(string.sub(held, 1, colon - 1))
end
local text = string.format('%.0f', now)
local kept = redis.call('SET', KEYS[2], text, 'PX', ARGV[3], 'GET')
local fence = math.max(now, previous + 1, (kept and tonumber(string.match(kept, '^%d+')) or 0) + 1)
if fence > now then
    text = string.format('%.0f', fence)
    redis.call('SET', KEYS[2], text, 'PX', ARGV[3])
end
redis.call('SET', KEYS[1], text .. ':' .. ARGV[1], 'PX', ARGV[2])
return fence
