-- Forgets a call, waiting or taken; the worker that has taken it finds it in its list.
local lane_prefix, id, cancelled_prefix, cancelled_ttl_s = unpack(ARGV, 1, 4)

local call = redis.call('HGET', CALLS, id)
if call then
    local lane, member = string.match(call, '^%S+ %S+ %S+ ([^\n]*)\n([^\n]*)')
    local key = lane_prefix .. lane
    local rows = redis.call('ZCARD', key)
    if redis.call('ZREM', key, member) == 1 then
        count_waiting(string.match(member, '^%S+ %S+ %S+ (.*)$'), -1)
        shrink_lane(key, lane, rows, 1, tonumber(string.match(member, '^%S+')))
        give_back(id)
    end
end
local holder = redis.call('HGET', TAKEN, id)
if holder and cancelled_prefix then  -- an api of an earlier release names none
    local key = cancelled_prefix .. string.match(holder, '^[^#]*')
    redis.call('RPUSH', key, id)
    redis.call('EXPIRE', key, cancelled_ttl_s)
end
forget(id)
