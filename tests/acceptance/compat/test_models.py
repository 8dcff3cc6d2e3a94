"""Models as OpenAI's and Anthropic's clients list them: since when there is each, and how long a
sequence it takes."""

from datetime import datetime

from anthropic import Anthropic
from openai import OpenAI

from ops.supervisor.platform import Platform
from tests.support.cases import each
from tests.support.models.entries import model
from tests.support.platforms import CHATTING

PLATFORM = CHATTING
MODELS = model("chatter", "echo_chat") + model("short", "echo_chat", context_tokens=100)
MODELS += model("plain", "echo")
CONTEXTS = {"chatter": 8192, "chatter@1": 8192, "short": 100, "minilm": 256, "plain": None}


def test_a_model_says_how_long_a_sequence_it_takes_where_it_has_such_a_bound(
    client: OpenAI,
) -> None:
    listed = {one.id: one for one in client.models.list()}
    for (name, context), case in each(CONTEXTS.items(), name=lambda pair: pair[0]):
        with case:
            found = client.models.retrieve(name)
            assert found == listed[name]
            extra = found.model_extra or {}
            assert extra == {"root": name.partition("@")[0]} | (
                {} if context is None else {"max_model_len": context}
            )


def test_a_declared_model_was_created_when_its_file_was_written(
    client: OpenAI, platform: Platform
) -> None:
    assert platform.settings.models is not None
    written = int(platform.settings.models.stat().st_mtime)
    assert {one.created for one in client.models.list()} == {written}


def test_anthropics_format_says_the_same(platform: Platform, client: OpenAI) -> None:
    claude = Anthropic(base_url=platform.url, api_key=client.api_key, max_retries=0)
    for (name, context), case in each(CONTEXTS.items(), name=lambda pair: pair[0]):
        with case:
            found = claude.models.retrieve(name)
            created = datetime.fromtimestamp(client.models.retrieve(name).created).astimezone()
            assert (found.max_input_tokens, found.created_at) == (context, created)
