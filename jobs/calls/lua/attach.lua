-- Sends what comes of a call to another api process, and returns the time, the call (empty: it has
-- ended) and its log from the start: no delta is lost or doubled in between. Returns nothing for a
-- call that isn't known, or is another tenant's. The api process that had it is told.
local id, tenant, log, reply_to, reply_prefix, reply_ttl_s, moved_code, moved_message = unpack(ARGV,
    1, 8)

local call = redis.call('HGET', CALLS, id)
if (call and tenant_of(call) or owner_of(id)) ~= tenant then return {} end
if call then
    local before, asker, after = string.match(call, '^(%S+ %S+ )(%S+)(.*)$')
    if asker ~= reply_to then
        local key = reply_prefix .. asker
        redis.call('RPUSH', key, error_reply(id, moved_code, moved_message))
        redis.call('EXPIRE', key, reply_ttl_s)
        redis.call('HSET', CALLS, id, before .. reply_to .. after)
    end
end
return {string.format('%.3f', now), call or '', redis.call('LRANGE', log, 0, -1)}
