-- Counts what calls used. A call that is not known any more was answered or given up before: it is
-- not counted again, unless it generated tokens that were not billed yet.
local sums = {}

local function read_tokens(tokens)
    local input, cached, output = string.match(tokens, '^(%d+) (%d+) (%d+)$')
    return {input_tokens = input, cached_tokens = cached, output_tokens = output}
end

-- whose: "class tenant", or nothing: nobody's use; succeeded: 1 or 0; tokens: "input cached output", or nothing. Returns
-- whether it was counted.
local function count(known, billed_ttl_s, id, whose, succeeded, units, device_us, tokens)
    if whose == '' then return known end
    local used = tokens ~= '' and read_tokens(tokens)
    local unbilled = used and first_bill(id, billed_ttl_s,
                                         used.input_tokens + used.output_tokens)
    if not (known or unbilled) then return false end
    local sum = sums[whose]
    if not sum then
        sum = {succeeded = 0, failed = 0, units = 0, device_us = 0}
        sums[whose] = sum
    end
    if succeeded == '1' then
        sum.succeeded = sum.succeeded + 1
        sum.units = sum.units + units
    else
        sum.failed = sum.failed + 1
    end
    sum.device_us = sum.device_us + device_us
    for what, tokens_used in pairs(unbilled and used or {}) do
        sum[what] = (sum[what] or 0) + tokens_used
    end
    return true
end

local function store_counts()
    local minute = math.floor(now / 60000)
    for whose, sum in pairs(sums) do
        local class, tenant = string.match(whose, '^(%S+) (.*)$')
        for what, number in pairs(sum) do
            if number > 0 then
                local field = minute .. ' ' .. class .. ' ' .. what .. ' ' .. tenant
                redis.call('HINCRBY', USED, field, string.format('%.0f', number))
            end
        end
    end
end
