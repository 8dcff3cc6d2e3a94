-- Where spot workers are ready beside others, calls of classes that aren't to be interrupted wait in lanes
-- of their own, which spot workers don't see. tiers: the pool's field; lines of spot workers begin
-- with ~.
local function has_both_kinds(tiers)
    local lines = '\n' .. tiers
    return string.find(lines, '\n~', 1, true) and string.find(lines, '\n[^~]') and true or false
end

local function is_spot(tiers, worker)
    for line in string.gmatch(tiers, '[^\n]+') do
        if string.sub(line, 1, 1) == '~' and string.find(line .. ' ', ' ' .. worker .. ' ', 1, true) then
            return true
        end
    end
    return false
end

-- Returns whether a tier of workers that aren't spot precedes that of a worker.
local function has_faster_that_stays(tiers, worker)
    for line in string.gmatch(tiers, '[^\n]+') do
        if string.find(line .. ' ', ' ' .. worker .. ' ', 1, true) then return false end
        if string.sub(line, 1, 1) ~= '~' then return true end
    end
    return false
end

local function is_on_demand(lane)
    return string.match(lane, '^on%-demand:') or string.match(lane, '^alone:on%-demand:')
end
