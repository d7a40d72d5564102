-- Ends the live hold of this owner and fence (R2, R3). The call's number stays
-- with the fence: a client that sends the call again because the reply was
-- lost gets the same answer. Waiters in other processes hear of it.
-- KEYS: name, fence. ARGV: owner, fence (0: any), call, fence's ttl in
-- milliseconds. Returns 1, or 0 when there is no such hold.
local held = redis.pcall('GET', KEYS[1])
if type(held) == 'string' then
    local colon = string.find(held, ':', 1, true)
    local fence = string.sub(held, 1, colon - 1)
    if string.sub(held, colon + 1) == ARGV[1] and (ARGV[2] == '0' or fence == ARGV[2]) then
        redis.call('DEL', KEYS[1])
        redis.call('SET', KEYS[2], fence .. ' ' .. ARGV[3], 'PX', ARGV[4])
        redis.call('PUBLISH', KEYS[1] .. ':free', '')
        return 1
    end
end
local kept = redis.call('GET', KEYS[2])
return kept and string.match(kept, ' (.*)') == ARGV[3] and 1 or 0
