-- Answers a call with an error, in its worker's place.
local function answer_error(id, asker, prefix, ttl, code, message)
    local reply = {id, cjson.null, {code, message}, 0, {}}
    redis.call('RPUSH', prefix .. asker, cjson.encode({reply}))
    redis.call('EXPIRE', prefix .. asker, ttl)
    forget(id)
end
