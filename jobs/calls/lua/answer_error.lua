-- Answers a call with an error, in its worker's place; nothing is billed.
local function answer_error(id, asker, prefix, ttl, code, message)
    local reply = {id, cjson.null, {code, message}, 0, {}}
    redis.call('RPUSH', prefix .. asker, cjson.encode({reply}))
    redis.call('EXPIRE', prefix .. asker, ttl)
    forget(id)
    give_back(id)
end
