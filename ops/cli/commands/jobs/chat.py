"""Command that talks to a model in the terminal."""

import json
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import click
import httpx

from jobs import clock
from ops.cli.commands.common import Number, client_command
from ops.client.client import ApiError, Client

_LOAD_S = 300.0  # longest wait for a model that is fetched and loaded
_POLL_S = 1.0


@click.command(epilog='Example: millrace chat smollm2 "Name three prime numbers."')
@click.argument("model")
@click.argument("text", required=False)
@click.option("--system", help="Instructions that begin the conversation.")
@click.option("--max-tokens", type=click.IntRange(1), help="Most tokens of an answer.")
@click.option(
    "--temperature",
    type=Number(0, 2),
    default=0.2,
    show_default=True,
    help="0: the likeliest token each time.",
)
@click.option("--seed", type=int, help="The same seed gives the same answer.")
@client_command
def chat(
    client: Client, model: str, text: str | None, system: str | None, as_json: bool, **fields: Any
) -> None:
    """Talks to MODEL; answers are printed while they are generated. With TEXT: answers it, and
    ends. --json prints chunks of the answer as they come."""
    given = {name: value for name, value in fields.items() if value is not None}
    messages = [{"role": "system", "content": system}] if system else []
    for line in [text] if text is not None else _lines():
        messages.append({"role": "user", "content": line})
        answer = _answer(_chunks(client, model, messages, given), as_json)
        messages.append({"role": "assistant", "content": answer})


def _lines() -> Iterator[str]:
    """Yields what is typed, until the end of input."""
    click.echo("End with Ctrl-D; Ctrl-C breaks off an answer.", err=True)
    while True:
        try:
            line = click.prompt(">", prompt_suffix=" ", default="", show_default=False, err=True)
        except click.Abort:
            click.echo(err=True)
            return
        if line:
            yield line


def _chunks(
    client: Client, model: str, messages: Sequence[dict[str, str]], fields: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """Yields the chunks of an answer; waits for a model that is loaded on demand."""
    until_s = clock.monotonic() + _LOAD_S
    for attempt in count():
        try:
            yield from client.chat(model, messages, **fields)
        except ApiError as error:
            if error.status != httpx.codes.SERVICE_UNAVAILABLE or clock.monotonic() > until_s:
                raise
            if not attempt:
                click.echo(f"{error.message}; waiting until one is", err=True)
            clock.sleep(_POLL_S)
        else:
            return


def _answer(chunks: Iterator[dict[str, Any]], as_json: bool) -> str:
    """Prints an answer while it comes, and returns its text. Raises ClickException where the
    stream ends in an error."""
    text = ""
    try:
        for chunk in chunks:
            if "error" in chunk:
                raise click.ClickException(chunk["error"].get("message", "the stream broke off"))
            choices = chunk.get("choices") or [{}]
            piece = choices[0].get("delta", {}).get("content") or ""
            text += piece
            click.echo(json.dumps(chunk) if as_json else piece, nl=as_json)
    except KeyboardInterrupt:
        pass
    if not as_json:
        click.echo()
    return text
