-- Grants the lease unless another owner's value is there: the key expires with
-- the hold, so that what is there is live (R1, R2).
-- KEYS: name, fence, line. ARGV: owner, ttl and the fence's ttl in
-- milliseconds, 0; and of a process in line its ticket, and '1' when it waits again.
-- Returns the fence; or 0: in use as a semaphore; or minus the milliseconds
-- after which to try again, -2^53 if that is unknown.
local now, text = clock()
local previous = 0
if redis.call('EXISTS', KEYS[1], KEYS[3]) > 0 then
    local held = redis.pcall('GET', KEYS[1])
    if type(held) == 'string' then
        local fence, owner = string.match(held, '^(%d+):(.+)$')
        if not fence then
            return foreign(KEYS[1])
        end
        if owner ~= ARGV[1] then
            wait_in(KEYS[3], ARGV[5], now)
            local left = redis.call('PTTL', KEYS[1])
            return left < 0 and -2 ^ 53 or -math.max(left, 1)
        end
        previous = tonumber(fence)
    else
        if held then
            if not string.find(held.err, 'WRONGTYPE', 1, true) then
                return held
            end
            if redis.call('TYPE', KEYS[1]).ok ~= 'zset' then
                return foreign(KEYS[1])
            end
            if redis.call('ZCOUNT', KEYS[1], '(' .. text, '+inf') > 0 then
                return 0
            end
        end
        if not may_have(KEYS[3], ARGV[5], now, 1) then
            wait_in(KEYS[3], ARGV[5], now)
            return not_yet(ARGV[5])
        end
    end
end
local fence = next_fence(KEYS[2], ARGV[3], now, text, previous)
redis.call('SET', KEYS[1], fence .. ':' .. ARGV[1], 'PX', ARGV[2])
leave(KEYS[3], ARGV[5], ARGV[6], now)
return fence
