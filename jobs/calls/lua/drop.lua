-- Forgets a call whose client left, unless another api process has it now.
local lane_prefix, id, cancelled_prefix, cancelled_ttl_s, reply_to = unpack(ARGV, 1, 5)

local call = redis.call('HGET', CALLS, id)
local has_it = call and string.match(call, '^%S+ %S+ (%S+)')
if call and (reply_to or has_it) == has_it then
    drop(id, call, lane_prefix, cancelled_prefix, cancelled_ttl_s)
end
