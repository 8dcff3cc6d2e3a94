-- Charges a call to its quotas and counts it as open, before it is queued in another slot: on a
-- Redis Cluster. ARGV from 4 on are as those of put.lua from 20 on; drain_ms: until an open call may
-- end. Returns as put.lua does.
local id, timeout_ms, drain_ms, n_rates, n_open, rates_key = unpack(ARGV, 1, 6)

n_rates, n_open = tonumber(n_rates), tonumber(n_open)
local worst, after, left = nil, nil, {}
local bounds = 7 + 4 * n_rates
if n_rates > 0 then worst, after = rates(rates_key, 7, n_rates) end
worst = check_open(bounds, n_open, n_rates, math.max(1, drain_ms), worst)
if worst then return {'quota', tostring(worst[2]), worst[1], worst[3]} end
if after then left = charge(rates_key, 7, after) end
count_open(bounds, n_open, id, now + timeout_ms)
return {'', '0', unpack(left)}
