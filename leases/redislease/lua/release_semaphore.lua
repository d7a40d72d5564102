-- Ends the live hold of this owner and fence (R2, R3). The call's number stays
-- with the fence: a client that sends the call again because the reply was
-- lost gets the same answer. Waiters in other processes hear of it.
-- KEYS: name, fence, owners. ARGV: owner, fence (0: any), call, fence's ttl in
-- milliseconds. Returns 1, or 0 when there is no such hold.
local time = redis.call('TIME')
local kept = redis.call('GET', KEYS[2])
local expiry = redis.pcall('ZSCORE', KEYS[1], ARGV[1])
if type(expiry) == 'string' and tonumber(expiry) > time[1] * 1000000 + time[2] then
    local fence = redis.call('HGET', KEYS[3], ARGV[1])
    if ARGV[2] == '0' or fence == ARGV[2] then
        redis.call('ZREM', KEYS[1], ARGV[1])
        redis.call('HDEL', KEYS[3], ARGV[1])
        -- The fence kept is that of the latest grant, not of this one.
        local latest = kept and string.match(kept, '^%d+') or fence or '0'
        redis.call('SET', KEYS[2], latest .. ' ' .. ARGV[3], 'PX', ARGV[4])
        redis.call('PUBLISH', KEYS[1] .. ':free', '')
        return 1
    end
end
return kept and string.match(kept, ' (.*)') == ARGV[3] and 1 or 0
