-- Tells that a worker loads the model, or starts its engine again, for so long from now.
local ttl_ms = unpack(ARGV, 1, 1)

local until_ms = tonumber(redis.call('HGET', POOL, 'loading') or '0')
redis.call('HSET', POOL, 'loading', string.format('%.3f', math.max(until_ms, now + ttl_ms)))
