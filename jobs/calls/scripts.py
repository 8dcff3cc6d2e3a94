"""Lua scripts that Redis executes, composed of the files in `lua/`.

A script has no policy: it does what a ticket says, in one atomic step. `lua/keys.lua` names the
keys of one model version. A lane is a sorted set: member ("size id weight tenant") -> due. A
tenant's quotas have a hash of rates (when each bucket is full again), and a sorted set for each
bound on open calls (id -> deadline); jobs/calls/quotas.py says which.

Fields of the hash POOL:

    launch, took             time of the latest launch, and its predicted duration
    called, wanted           when a call came, and when one found no worker
    gap                      mean distance of calls (lanes.mean_gap)
    watched, watched_rows    until when, or up to how many calls in a lane, no wake-up is needed
    watcher                  slot that looks again then
    profile, flush:<reason>  the latest profile; launches by flush reason
    units:<lane>             sizes of a lane's calls
    cost:<lane>, cost        predicted time of a lane's calls, and of all
    queued:<tenant>          "calls weight" of a tenant that waits
    weights                  sum of their weights

A call that generated tokens is billed under a key of its own ("tokens:<id>"), for an hour: once,
also where it is not known any more. Before, the key has what was charged for it by an estimate.

A call is in CALLS until it is answered, dropped or past its deadline; in a lane while it waits, in
TAKEN while a worker has it.
"""

from importlib.resources import files


def _script(*pieces: str) -> str:
    """Joins files: the shared pieces, then the script itself."""
    folder = files("jobs.calls") / "lua"
    return "\n".join((folder / f"{piece}.lua").read_text() for piece in pieces)


PUT = _script("keys", "now", "wakeups", "rates", "open", "put")
CHARGE = _script("now", "rates", "charge")
RESERVE = _script("now", "rates", "open", "reserve")
REFUND = _script("refund")
LOOK = _script("keys", "now", "tenants", "look")
TAKE = _script(
    *("keys", "now", "wakeups", "forget", "settle", "tokens", "answer_error", "tenants"),
    *("shrink_lane", "take"),
)
DROP = _script("keys", "now", "forget", "settle", "tokens", "tenants", "shrink_lane", "drop")
ABORT = _script("keys", "now", "wakeups", "tenants", "abort")
STREAM = _script("stream")
REPLY = _script("keys", "now", "forget", "settle", "tokens", "reply")
SETTLE = _script("now", "settle", "settle_elsewhere")
ANNOUNCE = _script("keys", "now", "wakeups", "announce")
WANTED = _script("keys", "now", "wanted")
UNKNOWN = _script("keys", "unknown")
RECOVER = _script(
    *("keys", "now", "wakeups", "forget", "settle", "tokens", "answer_error", "tenants", "recover")
)
