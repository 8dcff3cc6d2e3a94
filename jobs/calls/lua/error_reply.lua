-- Returns the message of one reply: an error.
local function error_reply(id, code, message)
    return cjson.encode({{id, cjson.null, {code, message}, 0, {}}})
end
