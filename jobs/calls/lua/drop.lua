-- Forgets a call, waiting or taken.
local lane_prefix, id = unpack(ARGV, 1, 2)

local call = redis.call('HGET', CALLS, id)
if call then
    local lane, member = string.match(call, '^%S+ %S+ %S+ ([^\n]*)\n([^\n]*)')
    local key = lane_prefix .. lane
    local rows = redis.call('ZCARD', key)
    if redis.call('ZREM', key, member) == 1 then
        count_waiting(string.match(member, '^%S+ %S+ %S+ (.*)$'), -1)
        shrink_lane(key, lane, rows, 1, tonumber(string.match(member, '^%S+')))
    end
end
forget(id)
