-- Returns whether a call found no worker within this time, or waits while none is ready: that of a
-- worker which died.
local wanted_ms = unpack(ARGV, 1, 1)

if redis.call('SCARD', LANES) > 0 and redis.call('ZCOUNT', READY, now, '+inf') == 0 then return true end
return now < tonumber(redis.call('HGET', POOL, 'wanted') or '-1e12') + wanted_ms
