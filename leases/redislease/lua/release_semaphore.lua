-- Ends the live hold of this owner and fence (R2, R3). The call's key is as in
-- release_lease.lua.
-- KEYS: name, call. ARGV: owner, fence (0: any), the call's ttl in milliseconds.
-- Returns 1, or 0 when there is no such hold.
local time = redis.call('TIME')
local held = redis.pcall('ZMSCORE', KEYS[1], 'e' .. ARGV[1], 'f' .. ARGV[1])
if held.err and not string.find(held.err, 'WRONGTYPE', 1, true) then
    return held
end
if held[1] and tonumber(held[1]) > time[1] * 1000000 + time[2] and (ARGV[2] == '0' or tonumber(held[2]) == -ARGV[2]) then
    redis.call('ZREM', KEYS[1], 'e' .. ARGV[1], 'f' .. ARGV[1])
    redis.call('SET', KEYS[2], '', 'PX', ARGV[3])
    redis.pcall('PUBLISH', KEYS[1] .. ':free', '') -- a hint: may fail
    return 1
end
return redis.call('EXISTS', KEYS[2])
