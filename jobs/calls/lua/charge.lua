-- Charges a request that is no call, and bound by rates alone. ARGV from 2 on: name, step (ms),
-- burst and cost of each rate. Returns as put.lua does.
local rates_key = unpack(ARGV, 1, 1)

local worst, after = rates(rates_key, 2, (#ARGV - 1) / 4)
if worst then return {'quota', tostring(worst[2]), worst[1], worst[3]} end
return {'', '0', unpack(charge(rates_key, 2, after))}
