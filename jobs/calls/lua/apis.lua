-- Sorted set: api process -> until when it is alive; of those that have streams.
local APIS = string.sub(LANES, 1, -#'lanes' - 1) .. 'apis'
