"""Lua scripts that Redis executes, composed of the files in `lua/`.

A script has no policy: it does what a ticket says, in one atomic step. `lua/keys.lua` names the
keys of one model version. A lane is a sorted set: member ("size id weight tenant") -> due. A
tenant's quotas have a hash of rates (when each bucket is full again), and a sorted set for each
bound on open calls (id -> deadline); jobs/calls/quotas.py says which.

Fields of the hash POOL:

    launch, took             time of the latest launch, and its predicted duration
    called, wanted           when a call came, and when one found no worker
    loading                  until when a worker is known to load the model
    gap                      mean distance of calls (lanes.mean_gap)
    watched, watched_rows    until when, or up to how many calls in a lane, no wake-up is needed
    watcher                  slot that looks again then
    profile, flush:<reason>  the latest profile; launches by flush reason
    profile:<worker>         that of one worker
    speed:<worker>, tiers    how fast one is, and which are alike (jobs/calls/tiers/tier.py)
    units:<lane>             sizes of a lane's calls
    cost:<lane>, cost        predicted time of a lane's calls, and of all
    queued:<tenant>          "calls weight" of a tenant that waits
    weights                  sum of their weights
    looked                   when api processes were last looked at that may have died

A call that generated tokens is billed under a key of its own ("tokens:<id>"), for an hour: once,
also where it is not known any more. Before, the key has what was charged for it by an estimate.

A call that generates has a log ("log:<id>", lua/log.lua): entry n is its delta number n, as a
message of that delta alone; the last entry of a stream that has ended is its reply, which begins
with a bracket. It lives until a while after the call's deadline or, once it has ended, for KEPT_S
(jobs/calls/streams/log.py); "owner:<id>" names the tenant of a stream that has ended, and its
adapter, for as long.
Deltas go to the `reply_to` in the call's head, which a script may change while the call runs.

A call is in CALLS until it is answered, dropped or past its deadline; in a lane while it waits, in
TAKEN while a worker has it.
"""

from importlib.resources import files


def _script(*pieces: str) -> str:
    """Joins files: the shared pieces, then the script itself."""
    folder = files("jobs.calls") / "lua"
    return "\n".join((folder / f"{piece}.lua").read_text() for piece in pieces)


PUT = _script("keys", "now", "wakeups", "holder", "rates", "open", "spot", "mixed", "put")
CHARGE = _script("now", "rates", "charge")
RESERVE = _script("now", "rates", "open", "reserve")
REFUND = _script("refund")
LOOK = _script("keys", "now", "wakeups", "tenants", "spot", "look")
TAKE = _script(
    *("keys", "now", "wakeups", "forget", "settle", "tokens", "error_reply", "answer_error"),
    *("tenants", "shrink_lane", "take"),
)
_DROP = "keys", "now", "forget", "settle", "tokens", "tenants", "shrink_lane", "drop_call"
DROP = _script(*_DROP, "drop")
CANCEL = _script(*_DROP, "log", "error_reply", "cancel")
ATTACH = _script("keys", "now", "log", "error_reply", "attach")
ABORT = _script("keys", "now", "wakeups", "tenants", "abort")
_COUNT = "keys", "now", "forget", "settle", "tokens", "count"
REPLY = _script(*_COUNT, "reply")
END = _script(*_COUNT, "log", "end")
STREAM = _script("keys", "log", "stream")
LOGS = _script("keys", "log", "logs")
SETTLE = _script("now", "settle", "settle_elsewhere")
ANNOUNCE = _script("keys", "now", "wakeups", "tiers", "announce")
PROFILES = _script("keys", "now", "profiles")
WANTED = _script("keys", "now", "wanted")
WANT = _script("keys", "now", "want")
LOADING = _script("keys", "now", "loading")
ATTEND = _script("keys", "now", "apis", "attend")
RECOVER = _script(
    *("keys", "now", "wakeups", "forget", "settle", "tokens", "error_reply", "answer_error"),
    *("tenants", "shrink_lane", "drop_call", "log", "apis", "orphans", "recover"),
)
