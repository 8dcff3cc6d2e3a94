-- Tells of calls whose api process died, and that no client has come back for. One is gone that was
-- silent already at the look before, a sign of life ago or longer, and said nothing since: where this
-- host was stopped for a while all were, and are heard before they are given up. A call is a sign of
-- life itself: of a model that is seldom called an api has told nothing since the call before.
-- ARGV[12]: for how long a sign of life holds (ms).
local gone = {}  -- by api process: until when it was alive
local looked = tonumber(redis.call('HGET', POOL, 'looked') or '0')
if now - looked >= tonumber(ARGV[12]) then
    local apis = redis.call('ZRANGEBYSCORE', APIS, '-inf', looked, 'WITHSCORES')
    for n = 1, #apis, 2 do gone[apis[n]] = tonumber(apis[n + 1]) end
    redis.call('HSET', POOL, 'looked', string.format('%.3f', now))
end

-- call: of CALLS; the last field of its packed value is for how long it may be resumed
-- (jobs/calls/messages.py).
local function is_orphan(call, default_s)
    local enqueued, asker, packed = string.match(call, '^(%S+) %S+ (%S+)[^\n]*\n[^\n]*\n(.*)$')
    if not gone[asker] then return false end
    local until_ms = math.max(gone[asker], tonumber(enqueued) + tonumber(ARGV[12]))
    local read, fields = pcall(cjson.decode, packed)
    local within_s = read and tonumber(fields[8]) or default_s
    return now > until_ms + within_s * 1000
end
