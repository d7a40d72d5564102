-- Ends the live hold of this owner and fence (R2, R3), and calls the first in
-- line. The rest is as in release_lease.lua.
-- KEYS: name, released, line. ARGV: owner, fence (0: any), the ttl of released
-- in milliseconds, '1' when sent again.
-- Returns 1, or 0 when there is no such hold.
local now = clock()
local held = redis.pcall('ZMSCORE', KEYS[1], 'e' .. ARGV[1], 'f' .. ARGV[1])
if held.err and not string.find(held.err, 'WRONGTYPE', 1, true) then
    return held
end
if held[1] and tonumber(held[1]) > now and (ARGV[2] == '0' or tonumber(held[2]) == -ARGV[2]) then
    redis.call('ZREM', KEYS[1], 'e' .. ARGV[1], 'f' .. ARGV[1])
    redis.call('SET', KEYS[2], '', 'PX', ARGV[3])
    call_next(KEYS[3])
    return 1
end
return ARGV[4] == '1' and redis.call('EXISTS', KEYS[2]) or 0
