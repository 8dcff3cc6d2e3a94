"""What Redis executes. No policy: each script does what a ticket says, in one atomic step.

KEYS, all of one model version: 1 lanes (set of names), 2 calls (hash: id -> packed), 3 ready
(sorted set: worker -> until), 4 bell (list), 5 pool (hash), 6 deadlines (hash: id -> "enqueued
deadline"). A lane is a sorted set: id -> due. Times are milliseconds of Redis' own clock.
"""

_NOW = """
local time = redis.call('TIME')
local now = time[1] * 1000 + time[2] / 1000
"""

# One token on the bell wakes one worker; a second token would wake a second one for nothing.
_RING = """
local function ring()
    if redis.call('LLEN', KEYS[4]) == 0 then redis.call('RPUSH', KEYS[4], '1') end
end
"""

# ARGV: lane key, lane name, id, packed call, target ms, timeout ms, most waiting
PUT = (
    _NOW
    + _RING
    + """
if redis.call('ZCOUNT', KEYS[3], now, '+inf') == 0 then return 'no_worker' end
if redis.call('HLEN', KEYS[2]) >= tonumber(ARGV[7]) then return 'overloaded' end
local deadline = now + ARGV[6]
redis.call('HSET', KEYS[2], ARGV[3], ARGV[4])
redis.call('HSET', KEYS[6], ARGV[3], string.format('%.3f %.3f', now, deadline))
redis.call('ZADD', ARGV[1], math.min(deadline, now + ARGV[5]), ARGV[3])
redis.call('SADD', KEYS[1], ARGV[2])
ring()
return ''
"""
)

# ARGV: prefix of lane keys. Returns now, last launch, what it took, replicas, {lane, rows, due}*
LOOK = (
    _NOW
    + """
local pool = redis.call('HMGET', KEYS[5], 'launch', 'took')
local found = {string.format('%.3f', now), pool[1] or '0', pool[2] or '0',
               redis.call('ZCOUNT', KEYS[3], now, '+inf')}
for _, lane in ipairs(redis.call('SMEMBERS', KEYS[1])) do
    local first = redis.call('ZRANGE', ARGV[1] .. lane, 0, 0, 'WITHSCORES')
    if first[1] then
        table.insert(found, {lane, redis.call('ZCARD', ARGV[1] .. lane), first[2]})
    else
        redis.call('SREM', KEYS[1], lane)
    end
end
return found
"""
)

# ARGV: lane key, lane name, rows, launched before, took. Returns {id, packed, enqueued deadline}*
TAKE = (
    _NOW
    + _RING
    + """
if tonumber(redis.call('HGET', KEYS[5], 'launch') or '0') > tonumber(ARGV[4]) then return {} end
local taken = {}
local rows = tonumber(ARGV[3])
while #taken < rows do
    local popped = redis.call('ZPOPMIN', ARGV[1], rows - #taken)
    if #popped == 0 then break end
    for n = 1, #popped, 2 do
        local id = popped[n]
        local times = redis.call('HGET', KEYS[6], id)
        local packed = redis.call('HGET', KEYS[2], id)
        redis.call('HDEL', KEYS[2], id)
        redis.call('HDEL', KEYS[6], id)
        if times and packed and tonumber(string.match(times, '%S+$')) > now then
            table.insert(taken, {id, packed, times})
        end
    end
end
if redis.call('EXISTS', ARGV[1]) == 0 then redis.call('SREM', KEYS[1], ARGV[2]) end
if #taken > 0 then
    redis.call('HSET', KEYS[5], 'launch', string.format('%.3f', now), 'took', ARGV[5])
end
if redis.call('SCARD', KEYS[1]) > 0 then ring() end
return taken
"""
)

# ARGV: lane key, id
DROP = """
redis.call('ZREM', ARGV[1], ARGV[2])
redis.call('HDEL', KEYS[2], ARGV[2])
redis.call('HDEL', KEYS[6], ARGV[2])
"""

# ARGV: worker, ttl ms
ANNOUNCE = (
    _NOW
    + """
redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', now)
if tonumber(ARGV[2]) > 0 then
    redis.call('ZADD', KEYS[3], now + ARGV[2], ARGV[1])
else
    redis.call('ZREM', KEYS[3], ARGV[1])
end
"""
)
