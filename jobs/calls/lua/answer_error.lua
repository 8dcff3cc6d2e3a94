-- Answers a call with an error, in its worker's place; nothing is billed. Returns the message.
local function answer_error(id, asker, prefix, ttl, code, message)
    local reply = error_reply(id, code, message)
    redis.call('RPUSH', prefix .. asker, reply)
    redis.call('EXPIRE', prefix .. asker, ttl)
    forget(id)
    give_back(id)
    return reply
end
