-- Checks bounds on open calls, whose keys and maxima are in ARGV from `at` on. Returns the quota that
-- keeps the call out for longest, these or `worst` of the `before` rates; drain: until a call ends.
local function check_open(at, count, before, drain, worst)
    for n = 1, count do
        local key, most = ARGV[at + 2 * n - 2], tonumber(ARGV[at + 2 * n - 1])
        if redis.call('ZCARD', key) >= most then
            redis.call('ZREMRANGEBYSCORE', key, '-inf', now)  -- an asker may have died
            if redis.call('ZCARD', key) >= most and (not worst or drain > worst[2]) then
                worst = {before + n, drain, 0}
            end
        end
    end
    return worst
end

-- Counts a call as open until its deadline. Returns the keys of the bounds.
local function count_open(at, count, id, deadline)
    local keys = {}
    for n = 1, count do
        keys[n] = ARGV[at + 2 * n - 2]
        redis.call('ZADD', keys[n], deadline, id)
    end
    return keys
end
