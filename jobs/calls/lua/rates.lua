-- Checks the rates whose names, steps, bursts and costs are in ARGV from `at` on. Returns the one
-- that keeps the request out for longest (its number, for how long, and what is left of it), or
-- how far each is ahead of now once it is charged. One of cost 0 was charged before, and only
-- makes the next request wait. A rate that was charged after now, by a clock that has stepped back
-- since, is as far ahead of now as it was of then.
local function rates(key, at, count)
    local names, worst, after, next_ms = {}, nil, {}, 0
    for n = 1, count do
        names[n] = ARGV[at + 4 * n - 4]
        names[count + n] = 'at:' .. names[n]
    end
    local stored = redis.call('HMGET', key, unpack(names))
    for n = 1, count do
        local place = at + 4 * n - 4
        local step, burst, cost = ARGV[place + 1], tonumber(ARGV[place + 2]), ARGV[place + 3]
        local full, charged = tonumber(stored[n] or '0'), tonumber(stored[count + n] or '0')
        if charged > now then
            full = full - charged + now
            redis.call('HSET', key, names[n], string.format('%.3f', full),
                       names[count + n], string.format('%.3f', now))
        end
        local ahead = math.max(0, full - now)
        local over = ahead + (math.min(cost, burst) - burst) * step
        if tonumber(cost) == 0 then
            next_ms = math.max(next_ms, ahead + (1 - burst) * step)
        elseif over > 1e-3 and (not worst or over > worst[2]) then
            worst = {n, over, math.max(0, math.floor(burst - ahead / step))}
        end
        after[n] = ahead + cost * step
    end
    if worst then worst[2] = math.max(worst[2], next_ms) end
    return worst, after
end

-- Charges the rates. Returns what is left of each, and in how many ms it is full again.
local function charge(key, at, after)
    local fields, left = {}, {}
    for n, ahead in ipairs(after) do
        local place = at + 4 * n - 4
        fields[4 * n - 3], fields[4 * n - 2] = ARGV[place], string.format('%.3f', now + ahead)
        fields[4 * n - 1], fields[4 * n] = 'at:' .. ARGV[place], string.format('%.3f', now)
        local units = math.max(0, ARGV[place + 2] - ahead / ARGV[place + 1])
        left[2 * n - 1], left[2 * n] = math.floor(units + 1e-6), math.ceil(ahead)
    end
    redis.call('HSET', key, unpack(fields))
    redis.call('EXPIRE', key, 86400)
    return left
end
