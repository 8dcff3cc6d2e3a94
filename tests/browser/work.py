"""A platform with models that are slow, moody, or an echo; and jobs for them."""

from millrace import Client
from tests.support.models.entries import function, model
from tests.support.pace import pace
from tests.support.platforms import spec

NASTY = "<img src=x onerror=alert(1)>&'\""
MODELS = (
    function(
        "paced:vectors", name="paced", limits={"max_batch": 4, "in_flight": 1, "slice_items": 8}
    )
    + function("broken:moody")
    + model("echo", "echo")
)
WORK = spec(MODELS, lease_s=3.0 * pace(), webhook_allow="127.0.0.1")


def talk(step_ms: int) -> str:
    """A model that generates: 8 texts at a time, in 400 blocks."""
    room = {"blocks": 400, "context_tokens": 2048, "sequences": 8}
    return model("talk", "echo_chat", target_ttft_ms=60000, step_ms=step_ms, **room)


def post(client: Client, model: str, items: list[str], **order: object) -> str:
    named = [{"custom_id": f"{NASTY}-{n}", "input": text} for n, text in enumerate(items)]
    id: str = client.jobs.create(model=model, items=named, **order)["id"]
    return id


def ended(client: Client, model: str, items: list[str], **order: object) -> str:
    """Posts a job, and waits for its end."""
    return client.jobs.wait(post(client, model, items, **order)).id
