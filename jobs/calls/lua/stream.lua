-- Appends deltas to the logs of their calls, and sends those of calls that stream: one message to
-- each api process. Returns the places (from 0) of deltas whose call another worker has, or that is not
-- known: nothing is done for them. A delta that was appended before is not sent again: the worker repeats what had
-- no answer. Where a log was lost, the stream goes on without one.
-- ARGV from 5 on, six a delta: the call, its holder, the delta's number, whether it is sent (1 or 0),
-- the packed delta, notes or nothing.
local reply_prefix, reply_ttl_s, mark, kept_ms = unpack(ARGV, 1, 4)
local FIRST, EACH = 5, 6

local calls = {}
local function find(id)
    if not calls[id] then
        local call = redis.call('HGET', CALLS, id)
        local deadline, asker = string.match(call or '', '^%S+ (%S+) (%S+)')
        calls[id] = {holder = redis.call('HGET', TAKEN, id), deadline = deadline, asker = asker}
    end
    return calls[id]
end

-- Returns whether the delta is a new one.
local function append(id, number, packed, notes, until_ms)
    local length = redis.call('LLEN', LOG .. id)
    if length == number then
        redis.call('RPUSH', LOG .. id, mark .. '[' .. packed .. ']')
        if number == 0 then redis.call('PEXPIREAT', LOG .. id, until_ms) end
        if notes ~= '' then redis.call('SET', NOTES .. id, notes, 'PXAT', until_ms) end
    end
    return length <= number
end

local lost, messages = {}, {}
for n = FIRST, #ARGV, EACH do
    local id, holder, number, sent, packed, notes = unpack(ARGV, n, n + EACH - 1)
    local call = find(id)
    if call.holder ~= holder or not call.deadline then
        lost[#lost + 1] = (n - FIRST) / EACH
    elseif append(id, tonumber(number), packed, notes, math.floor(call.deadline + kept_ms))
            and sent == '1' then
        local message = messages[call.asker] or {}
        messages[call.asker] = message
        message[#message + 1] = packed
    end
end
for asker, message in pairs(messages) do
    redis.call('RPUSH', reply_prefix .. asker, mark .. '[' .. table.concat(message, ',') .. ']')
    redis.call('EXPIRE', reply_prefix .. asker, reply_ttl_s)
end
return lost
