-- Appends the tiers of some workers, {launch, cost, worker}*, and of those whose speed isn't known.
local function append_tiers(tiers, known, unknown, alike, alike_ms, mark)
    local first = #tiers + 1
    table.sort(known, function(one, other)
        return one[1] < other[1] or (one[1] == other[1] and one[3] < other[3])
    end)
    if #known == 0 and #unknown > 0 then tiers[first] = {0, 0, mark = mark} end
    for _, entry in ipairs(known) do
        local tier = tiers[math.max(first, #tiers)]
        if not tier or entry[1] > math.max(alike * tier[1], tier[1] + alike_ms) then
            tier = {entry[1], entry[2], mark = mark}
            tiers[#tiers + 1] = tier
        end
        tier[2] = math.min(tier[2], entry[2])
        tier[#tier + 1] = entry[3]
    end
    for _, worker in ipairs(unknown) do table.insert(tiers[first], worker) end
end

-- Tiers of the ready workers (jobs/calls/tiers/tier.py), as text in the pool's field 'tiers'; there is no
-- such field where all are alike.
local function update_tiers(alike, alike_ms)
    local workers = redis.call('ZRANGEBYSCORE', READY, '(' .. now, '+inf')
    local tiers, before = {}, redis.call('HGET', POOL, 'tiers')
    if #workers > 1 then
        local fields = {}
        local known, unknown = {[''] = {}, ['~'] = {}}, {[''] = {}, ['~'] = {}}
        for n, worker in ipairs(workers) do fields[n] = 'speed:' .. worker end
        for n, speed in ipairs(redis.call('HMGET', POOL, unpack(fields))) do
            local mark, launch, cost = string.match(speed or '', '^(~?)(%S+) (%S+)$')
            if launch and tonumber(launch) > 0 then
                table.insert(known[mark], {tonumber(launch), tonumber(cost), workers[n]})
            else
                table.insert(unknown[mark or ''], workers[n])
            end
        end
        for _, mark in ipairs({'', '~'}) do
            append_tiers(tiers, known[mark], unknown[mark], alike, alike_ms, mark)
        end
        table.sort(tiers, function(one, other)  -- those of unknown speed last
            local ours = one[1] > 0 and one[1] or math.huge
            local theirs = other[1] > 0 and other[1] or math.huge
            return ours < theirs or (ours == theirs and one.mark < other.mark)
        end)
    end
    if not tiers[2] then
        redis.call('HDEL', POOL, 'tiers')
        return before ~= false
    end
    for n, tier in ipairs(tiers) do tiers[n] = tier.mark .. table.concat(tier, ' ') end
    local text = table.concat(tiers, '\n')
    redis.call('HSET', POOL, 'tiers', text)
    return text ~= before
end
