-- Charges of calls that generate, each under a key of its own until it is settled: JSON of the key of
-- the rates, the tokens that were estimated, the rates, and on a Redis Cluster the list from which
-- a keeper settles them: the rates are in another slot (jobs/calls/accounting/settlement.py).
local TOKENS = string.sub(LANES, 1, -#'lanes' - 1) .. 'tokens:'

local function settle(charge, used)
    local rates_key, estimated, rates, list, ttl_s = unpack(cjson.decode(charge))
    local more = used - estimated
    if list then
        redis.call('RPUSH', list, cjson.encode({rates_key, rates, more}))
        redis.call('EXPIRE', list, ttl_s)
    else
        settle_rates(rates_key, rates, more)
    end
end

-- Marks a call that generated as billed. Returns whether it is for the first time: a worker sends a
-- reply again that had no answer, and so does one that was taken for dead.
local function first_bill(id, ttl_s, used)
    local before = redis.call('SET', TOKENS .. id, 'billed', 'EX', ttl_s, 'GET')
    if before == 'billed' then return false end
    if before then settle(before, used) end
    return true
end

-- Gives back what a call was charged that ends without a worker: it used nothing.
local function give_back(id)
    local charge = redis.call('GET', TOKENS .. id)
    if charge and charge ~= 'billed' then
        redis.call('DEL', TOKENS .. id)
        settle(charge, 0)
    end
end
