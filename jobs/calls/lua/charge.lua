-- Charges a request that is no call, and bound by rates alone. ARGV: name, step (ms), burst and
-- cost of each rate. Returns as put.lua does.
local worst, after = rates(KEYS[1], 1, #ARGV / 4)
if worst then return {'quota', tostring(worst[2]), worst[1], worst[3]} end
return {'', '0', unpack(charge(KEYS[1], 1, after))}
