-- Returns those of the calls ARGV that are not known: they were answered, dropped or lost.
local unknown = {}
for _, id in ipairs(ARGV) do
    if redis.call('HEXISTS', CALLS, id) == 0 then table.insert(unknown, id) end
end
return unknown
