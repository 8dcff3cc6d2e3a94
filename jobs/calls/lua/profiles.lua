-- Returns now, until when a worker is ready (or '0'), the profile of each tier, as its latest
-- announcement has it (where all workers are alike the latest of all), and until when one loads the model.
local latest = redis.call('ZREVRANGE', READY, 0, 0, 'WITHSCORES')
local pool = redis.call('HMGET', POOL, 'tiers', 'profile', 'loading')
local profiles = {}
for line in string.gmatch(pool[1] or '', '[^\n]+') do
    local newest, at = nil, -1
    for worker in string.gmatch(string.match(line, '^%S+ %S+ (.*)$'), '%S+') do
        local ready = tonumber(redis.call('ZSCORE', READY, worker) or '0')
        if ready > at then newest, at = worker, ready end
    end
    profiles[#profiles + 1] = redis.call('HGET', POOL, 'profile:' .. newest) or ''
end
if not profiles[1] and pool[2] then profiles[1] = pool[2] end
return {string.format('%.3f', now), latest[2] or '0', profiles, pool[3] or '0'}
