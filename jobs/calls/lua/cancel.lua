-- Ends a call that its tenant cancels: its api process is told, and the worker that has taken it.
-- Returns whether the tenant has such a call.
local lane_prefix, id, cancelled_prefix, cancelled_ttl_s, tenant, reply_prefix, reply_ttl_s, code,
    message = unpack(ARGV, 1, 9)

local call = redis.call('HGET', CALLS, id)
if not call or tenant_of(call) ~= tenant then return 0 end
local key = reply_prefix .. string.match(call, '^%S+ %S+ (%S+)')
redis.call('RPUSH', key, error_reply(id, code, message))
redis.call('EXPIRE', key, reply_ttl_s)
drop(id, call, lane_prefix, cancelled_prefix, cancelled_ttl_s)
return 1
