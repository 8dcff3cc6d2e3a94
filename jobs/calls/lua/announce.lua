-- Marks a worker as ready and alive for so long (0: no longer). Its slots are named "worker/n".
local worker, ready_ms, alive_ms, profile = unpack(ARGV, 1, 4)

local function is_its(slot)
    return string.sub(slot, 1, #worker + 1) == worker .. '/'
end

local function set_until(key, ttl)
    redis.call('ZREMRANGEBYSCORE', key, '-inf', now)
    if tonumber(ttl) > 0 then
        redis.call('ZADD', key, now + ttl, worker)
    else
        redis.call('ZREM', key, worker)
    end
end
set_until(READY, ready_ms)
set_until(ALIVE, alive_ms)
redis.call('ZREMRANGEBYSCORE', BUSY, '-inf', now)
if ready_ms == '0' then
    for _, slot in ipairs(redis.call('ZRANGE', BUSY, 0, -1)) do
        if is_its(slot) then redis.call('ZREM', BUSY, slot) end
    end
end
if alive_ms == '0' then
    -- It may have been the watcher, or have taken the wake-up token.
    if is_its(redis.call('HGET', POOL, 'watcher') or '') then
        redis.call('HSET', POOL, 'watched', '0')
    end
    if redis.call('SCARD', LANES) > 0 then notify() end
end
if profile ~= '' then redis.call('HSET', POOL, 'profile', profile) end
