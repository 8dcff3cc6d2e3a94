-- Marks a worker as ready and alive for so long (0: no longer). Its slots are named "worker/n".
-- profile, speed: where they are known; alike, alike_ms: see jobs/calls/tiers/tier.py.
local worker, ready_ms, alive_ms, profile, speed, alike, alike_ms = unpack(ARGV, 1, 7)

local function is_its(slot)
    return string.sub(slot, 1, #worker + 1) == worker .. '/'
end

for _, gone in ipairs(redis.call('ZRANGEBYSCORE', ALIVE, '-inf', now)) do
    redis.call('HDEL', POOL, 'profile:' .. gone, 'speed:' .. gone)
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
    if redis.call('SCARD', LANES) > 0 then notify(pool_tiers()) end
end
if profile ~= '' then
    redis.call('HSET', POOL, 'profile', profile, 'profile:' .. worker, profile)
end
if speed ~= '' then redis.call('HSET', POOL, 'speed:' .. worker, speed) end
if alive_ms == '0' then redis.call('HDEL', POOL, 'profile:' .. worker, 'speed:' .. worker) end
local before = pool_tiers()
if update_tiers(tonumber(alike), tonumber(alike_ms)) then  -- slots wait for wake-ups of the tiers that were
    notify(before)
    notify(pool_tiers())
end
