-- Marks a call that generated as billed. Returns whether it is for the first time: a worker sends a
-- reply again that had no answer, and so does one that was taken for dead.
local function first_bill(key, ttl_s)
    return redis.call('SET', key, 'billed', 'EX', ttl_s, 'GET') ~= 'billed'
end
