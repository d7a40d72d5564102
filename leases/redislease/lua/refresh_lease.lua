-- Extends the live hold of this owner and fence (R2, R3).
-- KEYS: name. ARGV: owner, fence (0: any), ttl in milliseconds.
-- Returns 1, or 0 when there is none.
local held = redis.pcall('GET', KEYS[1])
if type(held) ~= 'string' then
    return 0
end
local colon = string.find(held, ':', 1, true)
if string.sub(held, colon + 1) ~= ARGV[1] or (ARGV[2] ~= '0' and string.sub(held, 1, colon - 1) ~= ARGV[2]) then
    return 0
end
return redis.call('PEXPIRE', KEYS[1], ARGV[3])
