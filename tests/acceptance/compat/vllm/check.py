"""Checks of vLLM's HTTP tests as data: requests, and what must be true of each answer."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import httpx

from tests.support.clients import events

MODEL = "smollm2"
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
RESPONSES = "/v1/responses"
ASKED: Any = [
    {"role": "system", "content": "you are a helpful assistant"},
    {"role": "user", "content": "what is 1+1?"},
]


@dataclass(frozen=True)
class Answer:
    """Answer to a request of a check."""

    status: int
    body: Any  #: of JSON; of a stream its chunks, or events with their data
    headers: Mapping[str, str]

    def __getitem__(self, name: str) -> Any:
        return self.body[name]

    @property
    def chunks(self) -> list[Any]:
        """Chunks of a stream; else the body."""
        return self.body if isinstance(self.body, list) else [self.body]

    @property
    def said(self) -> str:
        """Message of an error."""
        return str(self.body["error"]["message"])

    @property
    def choices(self) -> Any:
        return self.body["choices"]

    @property
    def choice(self) -> Any:
        return self.choices[0]

    @property
    def content(self) -> str:
        """Text of a chat's first choice."""
        return str(self.choice["message"]["content"])

    @cached_property
    def text(self) -> str:
        """Text of a stream's first choice, or of a response."""
        if isinstance(self.body, list):
            return "".join(map(_text_of, self.body))
        parts = [part for item in self.body["output"] for part in item.get("content", ())]
        return "".join(part["text"] for part in parts)


def _text_of(chunk: Any) -> str:
    if chunk.get("type") == "response.output_text.delta":
        return str(chunk["delta"])
    found = [one for one in chunk.get("choices", ()) if one["index"] == 0]
    return "".join(one["text"] if "text" in one else one["delta"].get("content") or ""
                   for one in found)  # fmt: skip


@dataclass(frozen=True)
class Request:
    """A request; the body of a POST is JSON, or as it is where it is bytes."""

    path: str
    body: Any = None
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict)

    def answered(self, http: httpx.Client) -> Answer:
        content = self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()
        kind = {"Content-Type": "application/json"}
        sent = content if self.method == "POST" else None
        got = http.request(self.method, self.path, content=sent, headers=kind | {**self.headers})
        if got.headers.get("content-type", "").startswith("text/event-stream"):
            found = [one.data for one in events(got.text.splitlines())]
            return Answer(got.status_code, [one for one in found if one], got.headers)
        is_json = "json" in got.headers.get("content-type", "")
        return Answer(got.status_code, got.json() if is_json else {}, got.headers)


_BOUNDED = {"max_tokens", "max_completion_tokens", "structured_outputs", "response_format"}
Later = Callable[[Sequence[Answer]], Request]
Holds = Callable[[Answer], object]


@dataclass(frozen=True)
class Check:
    """Test of vLLM."""

    name: str  #: file::test, below vLLM's tests/entrypoints
    #: requests, or what makes one of the answers before, with what must be true of the answer
    steps: tuple[tuple[Request | Later, Holds], ...]
    together: Callable[[Sequence[Answer]], object] = lambda _: True
    differs: str = ""  #: why the platform answers otherwise

    def run(self, http: httpx.Client) -> None:
        """Sends the requests; fails where an answer isn't as it must be."""
        found: list[Answer] = []
        for n, (request, holds) in enumerate(self.steps):
            made = request if isinstance(request, Request) else request(found)
            answer = made.answered(http)
            found.append(answer)
            assert holds(answer), f"step {n}: {answer.status} {answer.body!s:.2000}"
        assert self.together(found), found


def check(name: str, *steps: tuple[Request | Later, Holds], **more: Any) -> Check:
    return Check(name, steps, **more)


def chat(messages: Any = ASKED, **fields: Any) -> Request:
    """A chat, short unless it says how long, or has a form: a model of random weights goes on."""
    short = {} if fields.keys() & _BOUNDED else {"max_completion_tokens": 10}
    return Request(CHAT, {"model": MODEL, "messages": messages, **short, **fields})


def said(text: str, **fields: Any) -> Request:
    """A chat of one message."""
    return chat([{"role": "user", "content": text}], **fields)


def completion(prompt: Any, **fields: Any) -> Request:
    return Request(COMPLETIONS, {"model": MODEL, "prompt": prompt, **fields})


def response(input: Any, **fields: Any) -> Request:
    return Request(RESPONSES, {"model": MODEL, "input": input, **fields})


def get(path: str) -> Request:
    return Request(path, method="GET")


def ok(answer: Answer) -> bool:
    return answer.status == 200 and not any(one.get("error") for one in answer.chunks)


def refused(*texts: str) -> Holds:
    """400, and a message that has these texts."""
    return lambda a: a.status == 400 and all(text in a.said for text in texts)


def good(holds: Holds) -> Holds:
    """200, and what must be true of it."""
    return lambda a: ok(a) and holds(a)
