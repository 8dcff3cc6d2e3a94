-- Settles a call whose reply was in another slot. ARGV: JSON of its rates, the tokens that they are
-- charged with.
settle_rates(KEYS[1], cjson.decode(ARGV[1]), tonumber(ARGV[2]))
