-- Undoes reserve.lua for a call that was not admitted. ARGV: id, then as reserve.lua from 4 on.
local id, n_rates, n_open, rates_key = unpack(ARGV, 1, 4)

n_rates = tonumber(n_rates)
for n = 1, n_rates do
    local name, step, _, cost = unpack(ARGV, 1 + 4 * n, 4 + 4 * n)
    if redis.call('HEXISTS', rates_key, name) == 1 then
        redis.call('HINCRBYFLOAT', rates_key, name, -step * cost)
    end
end
for n = 1, tonumber(n_open) do redis.call('ZREM', ARGV[3 + 4 * n_rates + 2 * n], id) end
