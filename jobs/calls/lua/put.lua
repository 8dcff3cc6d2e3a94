-- Queues a call, or returns why not: ('' for a call that is in) and how long it would have waited
-- (for one that is late, with what others add to its launch); then, of quotas, the number of the
-- one that is exceeded and what is left of it, or what `charge` returns. Tenants take turns
-- (take.lua): at most that much is launched before a new call (lanes.TenantShare). The terms (lanes.Terms) are ARGV 11 to 16,
-- and those of all tiers ARGV 18, or nothing where they are alike: a call that stays with workers that
-- aren't spot waits in a lane of these (spot.lua). A caller without quotas has no
-- arguments after its weight; else ARGV from 24 on are the name, step (ms), burst and cost of each
-- rate, then the key and maximum of each bound on open calls; where tokens were estimated, then
-- the key by which they are settled, for how long (s), and what was charged (tokens.lua).
local lane_key, lane, id, member, packed, target_ms, timeout_ms, most_waiting, reply_to, size,
    allowed_ms, one_ms, step_ms, full_rows, full_ms, slots_each, probe_after_ms,
    tiers_terms, tenant, tenant_weight, rate_count, open_count, rates_key = unpack(ARGV, 1, 23)

local replicas = redis.call('ZCOUNT', READY, now, '+inf')
if replicas == 0 then
    redis.call('HSET', POOL, 'wanted', now)
    return {'no_worker', '0'}
end
local slots = replicas * slots_each
local queued_field = 'queued:' .. tenant
local pool = redis.call('HMGET', POOL, 'cost', 'cost:' .. lane, 'units:' .. lane,
                        'called', 'gap', 'watched', 'watched_rows', 'launch', queued_field,
                        'weights', 'tiers')
local tiers = pool[11]
local mixed = tiers and tiers_terms ~= '' and cjson.decode(tiers_terms)
local stays = mixed and mixed.stays and has_both_kinds(tiers)
if stays then
    lane_key = string.sub(lane_key, 1, -1 - #lane) .. 'on-demand:' .. lane
    lane = 'on-demand:' .. lane
    pool[2], pool[3] = unpack(redis.call('HMGET', POOL, 'cost:' .. lane, 'units:' .. lane))
end
local cost, own = tonumber(pool[1] or '0'), tonumber(pool[2] or '0')
local rows = redis.call('ZCARD', lane_key)
full_rows, full_ms = tonumber(full_rows), tonumber(full_ms)

local waiting = redis.call('HLEN', CALLS) - redis.call('HLEN', TAKEN)
local queued, counted = string.match(pool[9] or '0 0', '(%S+) (%S+)')
local weight = tonumber(tenant_weight)
local weights = math.max(weight, (pool[10] or 0) - counted + weight)
local turns = math.min(waiting, (queued + 1) * weights / weight)
local place = math.min(rows, math.floor(turns))

-- Slots ascend by when they are free: the idle ones, then the busy ones.
local function slot_free_in(slot)
    local busy = redis.call('ZRANGEBYSCORE', BUSY, '(' .. now, '+inf', 'WITHSCORES')
    local place = slot + #busy / 2 - slots
    return place < 0 and 0 or busy[2 * place + 2] - now
end

local before, first = 0, place - place % full_rows  -- in the launch that it shares
if full_ms > 0 then
    local others = waiting > 0 and (cost - own) * turns / waiting or 0
    before = math.floor((others + first / full_rows * full_ms) / full_ms + 1e-6)
end
local launch = one_ms + math.min(rows - first, full_rows - 1) * step_ms
local in_time, wait
if mixed then
    in_time, wait = mixed_in_time(tiers, mixed, slots_each, before, full_rows, rows, place, stays)
else
    wait = slot_free_in(before % slots) + math.floor(before / slots) * full_ms
    in_time = wait + launch <= tonumber(allowed_ms)
end
local adds = rows % full_rows == 0 and one_ms or step_ms
local deadline = now + timeout_ms

local n_rates, n_open = tonumber(rate_count or '0'), tonumber(open_count or '0')
local after, left = nil, {}
local bounds = 24 + 4 * n_rates
if n_rates + n_open > 0 then
    local worst = nil
    if n_rates > 0 then worst, after = rates(rates_key, 24, n_rates) end
    worst = check_open(bounds, n_open, n_rates, math.max(1, wait + launch), worst)
    if worst then return {'quota', tostring(worst[2]), worst[1], worst[3]} end
end

if waiting >= tonumber(most_waiting) and queued * weights >= most_waiting * weight then
    return {'overloaded', tostring(wait)}
end
local probes = wait == 0 and rows == 0 and now > tonumber(pool[8] or '0') + probe_after_ms
if not in_time and not probes then
    return {'late', tostring(wait + launch - one_ms)}
end

if after then left = charge(rates_key, 24, after) end
if n_open > 0 then
    local keys = count_open(bounds, n_open, id, deadline)
    redis.call('HSET', BOUNDED, id, table.concat(keys, ' '))
end
local settled_key, settled_ttl_s, charged = unpack(ARGV, bounds + 2 * n_open, bounds + 2 * n_open + 2)
if settled_key then redis.call('SET', settled_key, charged, 'EX', settled_ttl_s) end
local times = string.format('%.3f %.3f ', now, deadline)
redis.call('HSET', CALLS, id,
           times .. reply_to .. ' ' .. lane .. '\n' .. member .. '\n' .. packed)
redis.call('ZADD', lane_key, math.min(deadline, now + target_ms), member)
if rows == 0 then redis.call('SADD', LANES, lane) end
local gap = tonumber(pool[5] or '0')
if pool[4] then
    local since = now - pool[4]
    local share = gap == 0 and 1 or math.min(1, math.max(0.02, since / 1000))
    gap = gap + (since - gap) * share
end
redis.call('HSET', POOL, 'gap', gap, 'called', string.format('%.3f', now),
           'cost', cost + adds, 'cost:' .. lane, own + adds,
           'units:' .. lane, (pool[3] or 0) + size,
           queued_field, queued + 1 .. ' ' .. tenant_weight, 'weights', weights)
if stays then
    notify(tiers)  -- a spot worker may watch, or hold the beginning
elseif now >= tonumber(pool[6] or '0') or rows + 1 >= tonumber(pool[7]) then
    if not notify_holder() then notify(tiers) end
end
return {'', '0', unpack(left)}
