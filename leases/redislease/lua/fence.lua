-- Stands before the acquire scripts.

-- Keeps in key, and returns, the fence of a grant: at least now, the clock in
-- microseconds, and larger than previous and the one kept (R5). Whatever else
-- is in the key is overwritten; a fence is less than 2^53.
local function next_fence(key, ttl, now, previous)
    local text = string.format('%.0f', now)
    local kept = redis.pcall('SET', key, text, 'PX', ttl, 'GET')
    if type(kept) == 'table' then
        redis.call('SET', key, text, 'PX', ttl)
        kept = nil
    end
    kept = tonumber(kept or 0) or 0
    if not (kept < 2 ^ 53 - 1) then
        kept = 0
    end
    local fence = math.max(now, previous + 1, math.floor(kept) + 1)
    if fence > now then
        text = string.format('%.0f', fence)
        redis.call('SET', key, text, 'PX', ttl)
    end
    return fence, text
end

-- What is in a name's key if it is nothing of ours.
local function foreign(key)
    return redis.error_reply('ERR ' .. key .. ' holds neither a lease nor a semaphore: delete it')
end
