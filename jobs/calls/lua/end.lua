-- Ends calls that generate: sends each reply to the api process that waits for it now, and counts
-- what the call used. Of a call that another worker has, or that waits for one, nothing is sent and
-- nothing counted; of one that isn't known any more only its tokens, unless they were: its client has
-- left.
-- ARGV from 5 on, nine a call: its holder, whether it streams (1 or 0), its reply as a message, and
-- what `count` takes, whose second says "class/adapter tenant".
local reply_prefix, reply_ttl_s, billed_ttl_s, kept_s = unpack(ARGV, 1, 4)
local FIRST, EACH = 5, 9

for n = FIRST, #ARGV, EACH do
    local holder, streams, message, id = unpack(ARGV, n, n + 3)
    local call = redis.call('HGET', CALLS, id)
    if not call then
        if count(false, billed_ttl_s, unpack(ARGV, n + 3, n + EACH - 1)) then forget_log(id) end
    elseif redis.call('HGET', TAKEN, id) == holder then
        local key = reply_prefix .. string.match(call, '^%S+ %S+ (%S+)')
        redis.call('RPUSH', key, message)
        redis.call('EXPIRE', key, reply_ttl_s)
        if streams == '1' then
            end_log(id, call, message, kept_s, string.match(ARGV[n + 4], '^[^ /]*/(%S+)'))
        else
            forget_log(id)
        end
        forget(id)
        count(true, billed_ttl_s, unpack(ARGV, n + 3, n + EACH - 1))
    end
end
store_counts()
