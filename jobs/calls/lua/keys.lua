-- Keys of one model version. Times are milliseconds of Redis' own clock.
local LANES,   -- set of the names of lanes that are not empty
      CALLS,   -- hash: id -> head, member and packed call, a line each;
               -- the head is "enqueued deadline reply_to lane"
      READY,   -- sorted set: worker -> until when it is ready
      WAKEUPS, -- list that idle workers block on
      POOL,    -- hash, see jobs/calls/scripts.py
      TAKEN,   -- hash: id -> "worker#token"
      ALIVE,   -- sorted set: worker -> until when it is alive
      BUSY,    -- sorted set: slot -> until when it is busy
      SERVED,  -- hash: tenant -> its virtual time
      BOUNDED, -- hash: id -> keys of the bounds on open calls that it counts for, with spaces
      USED     -- hash: "minute class what tenant" -> sum; minutes since 1970; for reply alone
    = unpack(KEYS)
