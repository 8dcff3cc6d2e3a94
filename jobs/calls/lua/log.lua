-- Keys of calls that generate, by id, until their deadline and a while longer: LOG, a list of their
-- deltas, each a message, and of the reply that ended them; NOTES, what another worker needs beside
-- it; DIED, the length of the log when their worker died, and how often one did; OWNER, the tenant of
-- a stream that has ended and, on a line of its own, its adapter.
local PREFIX = string.sub(LANES, 1, -#'lanes' - 1)
local LOG, NOTES, DIED, OWNER = PREFIX .. 'log:', PREFIX .. 'notes:', PREFIX .. 'died:', PREFIX .. 'owner:'

local function owner_of(id)
    return string.match(redis.call('GET', OWNER .. id) or '', '^[^\n]*')
end

local function tenant_of(call)
    return string.match(call, '^[^\n]*\n%S+ %S+ %S+ ([^\n]*)')
end

-- Appends the reply of a stream to its log, which is kept for a while: a client may come back for it.
-- adapter: nil for none.
local function end_log(id, call, message, kept_s, adapter)
    local owner = tenant_of(call) .. (adapter and '\n' .. adapter or '')
    redis.call('RPUSH', LOG .. id, message)
    redis.call('EXPIRE', LOG .. id, kept_s)
    redis.call('SET', OWNER .. id, owner, 'EX', kept_s)
    redis.call('DEL', NOTES .. id, DIED .. id)
end

local function forget_log(id)
    redis.call('DEL', LOG .. id, NOTES .. id, DIED .. id)
end
