-- Extends the live hold of this owner and fence (R2, R3).
-- KEYS: name. ARGV: owner, fence (0: any), ttl in milliseconds.
-- Returns 1, or 0 when there is none.
local held = redis.pcall('GET', KEYS[1])
if type(held) == 'table' and not string.find(held.err, 'WRONGTYPE', 1, true) then
    return held
end
if type(held) ~= 'string' then
    return 0
end
local fence, owner = string.match(held, '^(%d+):(.+)$')
if owner ~= ARGV[1] or (ARGV[2] ~= '0' and fence ~= ARGV[2]) then
    return 0
end
return redis.call('PEXPIRE', KEYS[1], ARGV[3])
