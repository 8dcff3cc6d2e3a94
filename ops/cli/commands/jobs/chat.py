"""Command that talks with a model that generates."""

import json
import sys
from collections.abc import Iterator
from typing import Any

import click

from ops.cli.commands.common import client_command
from ops.client.client import Client


@click.command(epilog='Example: millrace chat smollm2 "What is a millrace?"')
@click.argument("model")
@click.argument("text", required=False)
@click.option("--system", help="Instruction that comes before the conversation.")
@click.option("--max-tokens", type=click.IntRange(1), help="Most tokens of an answer.")
@click.option("--temperature", type=click.FloatRange(0, 2), help="0: the likeliest token.")
@click.option("--seed", type=int, help="The same seed gives the same text.")
@client_command
def chat(
    client: Client, model: str, text: str | None, system: str | None, as_json: bool,
    max_tokens: int | None, temperature: float | None, seed: int | None,
) -> None:  # fmt: skip
    """Talks with MODEL, and prints its answers as they come. Without TEXT each line of the input
    is a message, until it ends. --json prints an object for each answer."""
    sampling = {"max_tokens": max_tokens, "temperature": temperature, "seed": seed}
    given = {name: value for name, value in sampling.items() if value is not None}
    messages = [{"role": "system", "content": system}] if system else []
    for said in [text] if text is not None else _lines():
        messages.append({"role": "user", "content": said})
        parts = client.stream(model, {"messages": messages, **given})
        answer = _answer(parts, as_json=as_json)
        messages.append({"role": "assistant", "content": answer})


def _lines() -> Iterator[str]:
    """Yields what is typed, line by line."""
    asks = sys.stdin.isatty()
    while True:
        if asks:
            click.echo("> ", nl=False)
        line = sys.stdin.readline()
        if not line:
            return
        if line.strip():
            yield line.strip()


def _answer(parts: Iterator[tuple[str, dict[str, Any]]], *, as_json: bool) -> str:
    """Prints an answer as it comes. Returns its text."""
    texts: list[str] = []
    for name, data in parts:
        if name == "done":
            ended = {"text": "".join(texts), "usage": data["usage"], "timing": data["timing"]}
            click.echo(json.dumps(ended) if as_json else "")
        else:
            texts.append(data["text"])
            if not as_json:
                click.echo(data["text"], nl=False)
    return "".join(texts)
