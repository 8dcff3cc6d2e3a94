-- Admission where the ready workers are of several tiers, as jobs/calls/tiers/admission.py has it. text: the
-- pool's tiers; mixed: the slack, and as tiers {allowed, one, step, full_rows, full_ms} of each; stays: the
-- call is left to workers that aren't spot, which have launched what comes before it in its lane; before: full
-- launches of `rows_each` rows that leave before the call's own; rows, place: calls of its lane, and
-- those of them that come before it. Returns whether some tier can answer it in time, and about how
-- long it waits for its launch.
local function mixed_in_time(text, mixed, slots_each, before, rows_each, rows, place, stays)
    local slack, terms = mixed.slack, mixed.tiers
    local tiers, tier_of = {}, {}
    for line in string.gmatch(text, '[^\n]+') do
        local tier = {free = {}, count = 0, spot = string.sub(line, 1, 1) == '~'}
        tiers[#tiers + 1] = tier
        local allowed, one, step, full_rows
        allowed, one, step, full_rows, tier.full_ms = unpack(terms[math.min(#tiers, #terms)])
        tier.rows, tier.full_ms = full_rows, math.max(tier.full_ms, 1e-6)
        local sharing = math.min(rows - (place - place % full_rows), full_rows - 1)
        tier.latest = allowed - (one + sharing * step) * (#tiers > 1 and slack or 1)
        for worker in string.gmatch(string.match(line, '^%S+ %S+ (.*)$'), '%S+') do
            tier_of[worker] = tier
            tier.count = tier.count + slots_each
        end
    end
    local busy = redis.call('ZRANGEBYSCORE', BUSY, '(' .. now, '+inf', 'WITHSCORES')
    for n = 1, #busy, 2 do
        local tier = tier_of[string.match(busy[n], '^[^/]*')]
        if tier and #tier.free < tier.count then tier.free[#tier.free + 1] = busy[n + 1] - now end
    end

    local ahead, rate, first = before * rows_each, 0, math.huge
    for _, tier in ipairs(tiers) do
        for n = #tier.free + 1, tier.count do tier.free[n] = 0 end
        tier.first = math.min(unpack(tier.free))
        first = math.min(first, tier.first)
        rate = rate + tier.count * tier.rows / tier.full_ms
    end
    for _, own in ipairs(tiers) do
        local launched, on_demand = 0, 0
        local can = own.first <= own.latest and not (stays and own.spot)
        for _, tier in ipairs(can and tiers or {}) do
            local until_ms = math.min(own.latest, tier.latest)
            for _, free in ipairs(tier.free) do
                if free <= until_ms then
                    local launches = math.floor((until_ms - free) / tier.full_ms + 1e-6) + 1
                    launched = launched + tier.rows * launches
                    if not tier.spot then on_demand = on_demand + tier.rows * launches end
                end
            end
        end
        local own_ahead = stays and place - place % rows_each or -1
        if launched > ahead and on_demand > own_ahead then return true, first + ahead / rate end
    end
    return false, first + ahead / rate
end
