-- Ends the live hold of this owner and fence (R2, R3), and calls the first in
-- line. A key of the process's own stays for as long as the caller waits: when
-- the client sends the call again because the reply was lost, it gets the same
-- answer, whoever has acquired and released the name in between.
-- KEYS: name, released, line. ARGV: owner, fence (0: any), the ttl of released
-- in milliseconds, '1' when sent again.
-- Returns 1, or 0 when there is no such hold.
local held = redis.pcall('GET', KEYS[1])
if type(held) == 'table' and not string.find(held.err, 'WRONGTYPE', 1, true) then
    return held
end
if type(held) == 'string' then
    local mine = held == ARGV[2] .. ':' .. ARGV[1]
    if ARGV[2] == '0' then
        mine = string.match(held, '^%d+:(.+)$') == ARGV[1]
    end
    if mine then
        redis.call('DEL', KEYS[1])
        redis.call('SET', KEYS[2], '', 'PX', ARGV[3])
        call_next(KEYS[3])
        return 1
    end
end
return ARGV[4] == '1' and redis.call('EXISTS', KEYS[2]) or 0
