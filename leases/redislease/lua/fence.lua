-- Stands before the acquire scripts.

-- Keeps in key, and returns as text, the fence of a grant: at least now, the
-- clock, and larger than previous and the one kept (R5). Whatever else is in
-- the key is overwritten; a fence is less than 2^53.
local function next_fence(key, ttl, now, text, previous)
    local kept = redis.pcall('SET', key, text, 'PX', ttl, 'GET')
    if type(kept) == 'table' then
        redis.call('SET', key, text, 'PX', ttl)
        kept = nil
    end
    kept = tonumber(kept or 0) or 0
    if kept < now and previous < now then
        return text
    end
    if not (kept < 2 ^ 53 - 1) then
        kept = 0
    end
    text = string.format('%.0f', math.max(now, previous + 1, math.floor(kept) + 1))
    redis.call('SET', key, text, 'PX', ttl)
    return text
end

-- What is in a name's key if it is nothing of ours.
local function foreign(key)
    return redis.error_reply('ERR ' .. key .. ' holds neither a lease nor a semaphore: delete it')
end
