-- One token on the list wakes one worker; a second token would wake a second one for nothing.
local function notify()
    if redis.call('LLEN', WAKEUPS) == 0 then redis.call('RPUSH', WAKEUPS, '1') end
end
