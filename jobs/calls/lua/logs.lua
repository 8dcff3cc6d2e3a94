-- Returns the notes and the log of each of the calls ARGV.
local found = {}
for n, id in ipairs(ARGV) do
    found[n] = {redis.call('GET', NOTES .. id) or '', redis.call('LRANGE', LOG .. id, 0, -1)}
end
return found
