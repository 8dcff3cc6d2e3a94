-- Recovers the calls of dead workers. One that generated since its worker died the last time goes
-- back into its own lane, unless its workers died too often. Any other may be why its worker died: it
-- goes into a lane whose calls run alone and, after that, is answered with an error. Drops calls of
-- dead api processes that no client came back for (orphans.lua), and tells these processes, which may
-- only have been stopped. ARGV from 15 on are takes ("worker#token") whose engine died, as if their
-- worker had. Returns how many were recovered; then, of those that died the first time, "worker cohort"
-- and their number, for each cohort of a rollout (jobs/rollouts/cohorts.py).
local lane_prefix, alone_prefix, reply_prefix, reply_ttl_s, lost_code, lost_message, kept_s,
    cancelled_prefix, cancelled_ttl_s, resume_within_s, most_deaths, _, silent_code,
    silent_message = unpack(ARGV, 1, 14)

if redis.call('HLEN', TAKEN) == 0 then return {0} end

local given_up = {}
for n = 15, #ARGV do given_up[ARGV[n]] = true end

local function holds(take)
    local worker = string.match(take, '^[^#]*')
    return not given_up[take] and tonumber(redis.call('ZSCORE', ALIVE, worker) or '0') > now
end

local function put_back(id, before, lane, member, after)
    redis.call('HSET', CALLS, id, before .. lane .. '\n' .. member .. after)
    redis.call('HDEL', TAKEN, id)
    redis.call('ZADD', lane_prefix .. lane, now, member)
    redis.call('SADD', LANES, lane)
    local size, weight, tenant = string.match(member, '^(%S+) %S+ (%S+) (.*)$')
    redis.call('HINCRBY', POOL, 'units:' .. lane, size)
    count_waiting(tenant, 1, weight)
    notify(pool_tiers())
end

-- Returns whether a call's log has grown since its worker died the last time, of a call whose
-- workers did not die too often.
local function generated(id, deadline)
    local length = redis.call('LLEN', LOG .. id)
    local before, deaths = string.match(redis.call('GET', DIED .. id) or '0 0', '^(%d+) (%d+)$')
    if length <= tonumber(before) or tonumber(deaths) >= tonumber(most_deaths) then return false end
    redis.call('SET', DIED .. id, length .. ' ' .. deaths + 1, 'PXAT',
               math.floor(deadline + kept_s * 1000))
    return true
end

local died, cohorts = {}, {}  -- number by "worker cohort", and these in order

-- Counts a call of a rollout, whose cohort is the last field of its packed value.
local function count_death(take, call)
    local cohort = string.match(call, '"(%l+#[^"]*)"%]$')
    if not cohort then return end
    local name = string.match(take, '^[^#]*') .. ' ' .. cohort
    if not died[name] then table.insert(cohorts, name) end
    died[name] = (died[name] or 0) + 1
end

local recovered = 0
local taken = redis.call('HGETALL', TAKEN)
for n = 1, #taken, 2 do
    local id = taken[n]
    local call = redis.call('HGET', CALLS, id) or ''
    local before, lane, member, after =
        string.match(call, '^(%S+ %S+ %S+ )([^\n]*)\n([^\n]*)(.*)$')
    local deadline, asker = string.match(call, '^%S+ (%S+) (%S+)')
    local was_alone = lane and string.sub(lane, 1, #alone_prefix) == alone_prefix
    if deadline and not was_alone and not holds(taken[n + 1]) then count_death(taken[n + 1], call) end
    if not deadline or tonumber(deadline) <= now then
        forget(id)
    elseif is_orphan(call, resume_within_s) then
        redis.call('RPUSH', reply_prefix .. asker, error_reply(id, silent_code, silent_message))
        redis.call('EXPIRE', reply_prefix .. asker, reply_ttl_s)
        drop(id, call, lane_prefix, cancelled_prefix, cancelled_ttl_s)
    elseif not holds(taken[n + 1]) then
        recovered = recovered + 1
        local own = was_alone and string.sub(lane, #alone_prefix + 1) or lane
        if generated(id, deadline) then
            put_back(id, before, own, member, after)
        elseif not was_alone then
            put_back(id, before, alone_prefix .. own, member, after)
        else
            local message = answer_error(id, asker, reply_prefix, reply_ttl_s, lost_code, lost_message)
            if redis.call('EXISTS', LOG .. id) == 1 then end_log(id, call, message, kept_s) end
        end
    end
end
local found = {recovered}
for _, name in ipairs(cohorts) do
    table.insert(found, name)
    table.insert(found, died[name])
end
return found
