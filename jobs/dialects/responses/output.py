"""Output of a response: items and events, built from the text of the model as it grows.

Which items there are, their ids and their events follow from the text alone, however it is cut
into parts: whoever builds them again, from the first character, builds the same.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from jobs.models.inputs.tool_calls import ToolCallParser

Event = dict[str, Any]
Item = dict[str, Any]


class OutputBuilder:
    """Builds the items of one response, and the events of each.

    piece: characters of every delta but the last of a message, which makes the events follow from
    the text; None: a delta for each part that is fed.
    """

    def __init__(self, digits: str, *, tools: bool, piece: int | None = None) -> None:
        """digits: of the response's id, after its prefix. tools: calls in the text are items."""
        self._digits, self._piece = digits, piece
        self._parser = ToolCallParser(self._new_call_id, keeps_blanks=True) if tools else None
        self._calls = 0
        self._message: Item | None = None  # the item that is open
        self._waiting = ""  # end of its text that has no event yet
        self.items: list[Item] = []

    def feed(self, text: str, logprobs: Sequence[Mapping[str, Any]] = ()) -> list[Event]:
        """Takes the next part of the text; returns its events."""
        seen = [_logprob(one) for one in logprobs]
        if self._parser is None:
            return self._add_text(text, seen) if text or seen else []
        events: list[Event] = []
        run = ""
        for character in text:  # one by one: text and calls keep their order
            parsed = self._parser.feed(character)
            run += parsed.text
            if parsed.calls:
                events += self._add_text(run, seen)
                run, seen = "", []
                events += self._add_calls(parsed.calls)
        return events + self._add_text(run, seen)

    def finish(self, *, complete: bool) -> list[Event]:
        """Ends the output; complete: False where the text was cut."""
        events: list[Event] = []
        if self._parser is not None:
            rest = self._parser.finish(cut=not complete)
            events += self._add_text(rest.text, [])
            events += self._add_calls(rest.calls)
        if not self.items:
            events += self._open_message()
        return events + self._close_message("completed" if complete else "incomplete")

    def take_message(self, message: Mapping[str, Any], *, complete: bool) -> list[Event]:
        """Takes the message of a chat completion, or what of its text has no events yet, and ends
        the output. Calls that it has apart are those of the whole text."""
        calls = message.get("tool_calls") or ()
        if self._parser is not None:
            self._parser.forget()
        events = self.feed(message.get("content") or "")
        events += self._add_calls(calls[self._calls :])
        return events + self.finish(complete=complete)

    def _new_call_id(self) -> str:
        self._calls += 1
        return f"call_{self._digits}{self._calls - 1:02d}"

    def _item_id(self, prefix: str) -> str:
        return f"{prefix}_{self._digits}{len(self.items):02d}"

    def _add_text(self, text: str, logprobs: list[Item]) -> list[Event]:
        events: list[Event] = []
        if self._message is None:
            if self._parser is not None:
                text = text.lstrip()  # blank lines around calls
            if not text and not logprobs:
                return events
            events += self._open_message()
        assert self._message is not None
        part = self._message["content"][0]
        part["text"] += text
        part["logprobs"] += logprobs
        self._waiting += text
        if self._piece is None:
            return events + self._delta(len(self._waiting), logprobs)
        while len(self._waiting) >= self._piece:
            events += self._delta(self._piece, [])
        return events

    def _delta(self, characters: int, logprobs: list[Item]) -> list[Event]:
        delta, self._waiting = self._waiting[:characters], self._waiting[characters:]
        if not delta and not logprobs:
            return []
        deltas = {"delta": delta, "logprobs": logprobs}
        return [{"type": "response.output_text.delta", **self._place(), **deltas}]

    def _place(self) -> Event:
        assert self._message is not None
        id, index = self._message["id"], len(self.items) - 1
        return {"item_id": id, "output_index": index, "content_index": 0}

    def _open_message(self) -> list[Event]:
        id = self._item_id("msg")
        head = {"id": id, "type": "message", "status": "in_progress", "role": "assistant"}
        part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        self._message = {**head, "content": [part]}
        self.items.append(self._message)
        item = {**head, "content": []}
        added = {"type": "response.output_item.added", "output_index": len(self.items) - 1}
        shown = {**part, "logprobs": []}
        return [
            {**added, "item": item},
            {"type": "response.content_part.added", **self._place(), "part": shown},
        ]

    def _close_message(self, status: str) -> list[Event]:
        if self._message is None:
            return []
        events = self._delta(len(self._waiting), [])
        self._message["status"] = status
        part = self._message["content"][0]
        text = {"text": part["text"], "logprobs": part["logprobs"]}
        place = self._place()
        self._message = None
        return [
            *events,
            {"type": "response.output_text.done", **place, **text},
            {"type": "response.content_part.done", **place, "part": part},
            self._item_done(),
        ]

    def _item_done(self) -> Event:
        index = len(self.items) - 1
        return {"type": "response.output_item.done", "output_index": index, "item": self.items[-1]}

    def _add_calls(self, calls: Sequence[Mapping[str, Any]]) -> list[Event]:
        return [event for call in calls for event in self._add_call(call)]

    def _add_call(self, call: Mapping[str, Any]) -> list[Event]:
        events = self._close_message("completed")
        id, function = self._item_id("fc"), call["function"]
        head = {"id": id, "type": "function_call", "call_id": call["id"], "name": function["name"]}
        arguments = function["arguments"]
        status = "completed" if _is_json(arguments) else "incomplete"
        self.items.append({**head, "arguments": arguments, "status": status})
        index = len(self.items) - 1
        place = {"item_id": id, "output_index": index}
        begun = {**head, "arguments": "", "status": "in_progress"}
        name, kind = function["name"], "response.function_call_arguments"
        return [
            *events,
            {"type": "response.output_item.added", "output_index": index, "item": begun},
            {"type": f"{kind}.delta", **place, "delta": arguments},
            {"type": f"{kind}.done", **place, "name": name, "arguments": arguments},
            self._item_done(),
        ]


def _is_json(text: str) -> bool:
    """Returns False for the arguments of a call that was cut."""
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


def _logprob(one: Mapping[str, Any]) -> Item:
    names = ("token", "logprob", "bytes")
    seen = {name: one.get(name) for name in names}
    top = [{name: each.get(name) for name in names} for each in one.get("top_logprobs") or ()]
    return {**seen, "bytes": seen["bytes"] or [], "top_logprobs": top}
