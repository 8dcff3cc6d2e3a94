"""Command that talks to a model in the terminal."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import click

from jobs import clock
from millrace import APIError, APIStatusError, ChatChunk, Client
from ops.cli.commands.common import Number, client_command

_LOAD_S = 300.0  # longest wait for a model that is fetched and loaded
_POLL_S = 1.0
_UNAVAILABLE = 503


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
) -> Iterator[ChatChunk]:
    """Yields the chunks of an answer; waits for a model that is loaded on demand."""
    until_s = clock.monotonic() + _LOAD_S
    said: set[str] = set()

    def say(error: APIError) -> None:
        """Says once why it waits."""
        if _is_loading(error) and not said:
            said.add(str(error))
            click.echo(f"{error}; waiting until one is", err=True)

    while True:
        try:
            yield from client.chat.stream(model, messages, on_retry=say, **fields)
        except APIStatusError as error:
            if not _is_loading(error) or clock.monotonic() > until_s:
                raise
            say(error)
            clock.sleep(_POLL_S)
        else:
            return


def _is_loading(error: APIError) -> bool:
    return isinstance(error, APIStatusError) and error.status == _UNAVAILABLE


def _answer(chunks: Iterator[ChatChunk], as_json: bool) -> str:
    """Prints an answer while it comes, and returns its text. Raises StreamError."""
    text = ""
    try:
        for chunk in chunks:
            text += chunk.text
            click.echo(json.dumps(chunk) if as_json else chunk.text, nl=as_json)
    except KeyboardInterrupt:
        pass
    if not as_json:
        click.echo()
    return text
