-- Forgets a call, waiting or taken; the worker that has taken it finds it in its list.
local function drop(id, call, lane_prefix, cancelled_prefix, cancelled_ttl_s)
    local lane, member = string.match(call, '^%S+ %S+ %S+ ([^\n]*)\n([^\n]*)')
    local key = lane_prefix .. lane
    local rows = redis.call('ZCARD', key)
    if redis.call('ZREM', key, member) == 1 then
        count_waiting(string.match(member, '^%S+ %S+ %S+ (.*)$'), -1)
        shrink_lane(key, lane, rows, 1, tonumber(string.match(member, '^%S+')))
        give_back(id)
    end
    local holder = redis.call('HGET', TAKEN, id)
    if holder and cancelled_prefix then  -- an api of an earlier release names none
        local list = cancelled_prefix .. string.match(holder, '^[^#]*')
        redis.call('RPUSH', list, id)
        redis.call('EXPIRE', list, cancelled_ttl_s)
    end
    forget(id)
end
