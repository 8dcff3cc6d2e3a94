-- Pushes the deltas of a step to the api processes that wait for them, and returns the calls of this
-- worker that were dropped meanwhile. ARGV from 4 on: the key of an api process's replies, and a
-- message, in turn.
local cancelled_prefix, worker, reply_ttl_s = unpack(ARGV, 1, 3)

for n = 4, #ARGV, 2 do
    redis.call('RPUSH', ARGV[n], ARGV[n + 1])
    redis.call('EXPIRE', ARGV[n], reply_ttl_s)
end
local cancelled = redis.call('LRANGE', cancelled_prefix .. worker, 0, -1)
if #cancelled > 0 then redis.call('DEL', cancelled_prefix .. worker) end
return cancelled
