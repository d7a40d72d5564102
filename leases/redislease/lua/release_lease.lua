-- Ends the live hold of this owner and fence (R2, R3). A key of the call's own
-- stays for as long as its caller waits: a client that sends the call again
-- because the reply was lost gets the same answer, whoever has acquired and
-- released the name in between. Waiters in other processes are told.
-- KEYS: name, call. ARGV: owner, fence (0: any), the call's ttl in milliseconds.
-- Returns 1, or 0 when there is no such hold.
local held = redis.pcall('GET', KEYS[1])
if type(held) == 'table' and not string.find(held.err, 'WRONGTYPE', 1, true) then
    return held
end
if type(held) == 'string' then
    local fence, owner = string.match(held, '^(%d+):(.+)$')
    if owner == ARGV[1] and (ARGV[2] == '0' or fence == ARGV[2]) then
        redis.call('DEL', KEYS[1])
        redis.call('SET', KEYS[2], '', 'PX', ARGV[3])
        redis.pcall('PUBLISH', KEYS[1] .. ':free', '') -- a hint: may fail
        return 1
    end
end
return redis.call('EXISTS', KEYS[2])
