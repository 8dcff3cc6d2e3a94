"""A platform with models that are slow, moody, or an echo; and jobs for them."""

from millrace import Client
from tests.support.platforms import spec

NASTY = "<img src=x onerror=alert(1)>&'\""
MODELS = """
[[model]]
name = "paced"
version = "1"
engine = "function"
options = { function = "tests.support.models.paced:vectors" }
limits = { max_batch = 4, in_flight = 1, slice_items = 8 }

[[model]]
name = "moody"
version = "1"
engine = "function"
options = { function = "tests.support.models.broken:moody" }

[[model]]
name = "echo"
version = "1"
engine = "echo"
"""
WORK = spec(MODELS, lease_s=3.0, webhook_allow="127.0.0.1")


def post(client: Client, model: str, items: list[str], **order: object) -> str:
    named = [{"custom_id": f"{NASTY}-{n}", "input": text} for n, text in enumerate(items)]
    id: str = client.jobs.create(model=model, items=named, **order)["id"]
    return id
