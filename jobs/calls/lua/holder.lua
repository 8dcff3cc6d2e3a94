-- KEYS[11], which calls of models that generate may have, names the slot whose cache has the beginning
-- of the call ("worker slot key-that-wakes-it"). Wakes it, and returns true, where its worker is ready
-- and the slot has room.
local function notify_holder()
    local holder = KEYS[11] and redis.call('GET', KEYS[11]) or ''
    local worker, slot, wake = string.match(holder, '^(%S+) (%S+) (%S+)$')
    if not worker or tonumber(redis.call('ZSCORE', READY, worker) or '0') <= now
       or tonumber(redis.call('ZSCORE', BUSY, slot) or '0') > now then
        return false
    end
    if redis.call('LLEN', wake) == 0 then
        redis.call('RPUSH', wake, '1')
        redis.call('EXPIRE', wake, 60)
    end
    return true
end
