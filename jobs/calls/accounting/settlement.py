"""Settlement of tokens a minute on a Redis Cluster.

The scripts that end a call run in its model's slot, and quotas are in the slot of their tenant:
what is to be settled waits in a list of the model, from which a keeper takes it.
"""

from collections.abc import Iterable
from typing import Any

import orjson
from redis import Redis

from jobs.calls import scripts
from jobs.calls.keys import Keys

_AT_ONCE = 1000


def settle_quotas(client: "Redis", models: Iterable[str]) -> int:
    """Settles the ended calls of these models (name@version); returns how many. What is taken and
    not settled, where a process dies, stays charged by its estimate. Raises RedisError."""
    settle, settled = client.register_script(scripts.SETTLE), 0
    for model in models:
        waiting: Any = client.lpop(Keys(model).unsettled, _AT_ONCE)
        for packed in waiting or ():
            rates_key, rates, more = orjson.loads(packed)
            settle([rates_key], [orjson.dumps(rates), more])
            settled += 1
    return settled
