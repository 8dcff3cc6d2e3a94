-- Marks an api process as alive for so long, and returns those of the calls that it waits for which
-- are not known: they were answered, dropped or lost. Forgets api processes that died long ago.
local reply_to, alive_ms, forget_ms = unpack(ARGV, 1, 3)

redis.call('ZADD', APIS, now + alive_ms, reply_to)
redis.call('ZREMRANGEBYSCORE', APIS, '-inf', now - forget_ms)
local unknown = {}
for n = 4, #ARGV do
    if redis.call('HEXISTS', CALLS, ARGV[n]) == 0 then table.insert(unknown, ARGV[n]) end
end
return unknown
