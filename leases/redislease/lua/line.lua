-- Stands before the acquire, release and leave scripts.

-- The clock: in microseconds since 1970, and as the text of that number.
local function clock()
    local time = redis.call('TIME')
    local text = time[1] .. string.sub('00000' .. time[2], -6)
    return tonumber(text), text
end

-- The line of a name has a ticket for each process that waits, in a sorted set,
-- scored by its arrival in microseconds. A ticket whose turn it is has for its
-- score the turn's end minus 2^53 instead, which is less than 0.
local turn_time = 100000
local epoch = 2 ^ 53

-- Ends the turns that nobody has taken.
local function end_turns(line, now)
    redis.call('ZREMRANGEBYSCORE', line, '-inf', now - epoch)
end

-- The ticket that has waited longest, or nil.
local function first_in(line)
    return redis.call('ZRANGEBYSCORE', line, 0, '+inf', 'LIMIT', 0, 1)[1]
end

-- Makes it the first ticket's turn and tells its process. One whose channel
-- nobody listens to is dropped, for its process is gone, unless it begins with
-- '?': then it listens at another node of a cluster. Returns false when none waits.
local function call_first(line, now)
    for ticket in first_in, line do
        local heard = redis.pcall('PUBLISH', line .. ':' .. ticket, '')
        if heard ~= 0 or string.sub(ticket, 1, 1) == '?' then
            redis.pcall('ZADD', line, now + turn_time - epoch, ticket)
            return true
        end
        redis.call('ZREM', line, ticket)
    end
    return false
end

-- What a release does.
local function call_next(line)
    if redis.call('EXISTS', line) == 1 then
        call_first(line, (clock()))
    end
end

-- Reports whether a ticket, or nil for none, may have one of the free places
-- now: those whose turn it is come first, and those who have waited longer.
local function may_have(line, ticket, now, free)
    if redis.call('EXISTS', line) == 0 then
        return true
    end
    end_turns(line, now)
    local mine = ticket and redis.call('ZSCORE', line, ticket)
    if mine and tonumber(mine) < 0 then
        return true
    end
    free = free - redis.call('ZCOUNT', line, '-inf', '(0')
    while free > 0 do
        local first = first_in(line)
        if not first or first == ticket then
            return true
        end
        if call_first(line, now) then
            free = free - 1
        end
    end
    return false
end

-- What a busy name does to a ticket: it keeps its place or gets the last one. A
-- line is kept up by the attempts of those who wait; a hint, it may fail.
local function wait_in(line, ticket, now)
    if ticket then
        end_turns(line, now)
        redis.pcall('ZADD', line, 'NX', now, ticket)
        redis.call('PEXPIRE', line, 60000)
    end
end

-- What a grant does to a ticket.
local function leave(line, ticket, again, now)
    if ticket then
        redis.call('ZREM', line, ticket)
        if again == '1' then
            wait_in(line, ticket, now)
        end
    end
end

-- The answer to a claim that has to let others go first.
local function not_yet(ticket)
    return ticket and -turn_time / 1000 or -epoch
end
