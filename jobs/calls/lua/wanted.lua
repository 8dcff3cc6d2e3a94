-- Returns whether a call found no worker within this time.
local wanted_ms = unpack(ARGV, 1, 1)

return now < tonumber(redis.call('HGET', POOL, 'wanted') or '-1e12') + wanted_ms
