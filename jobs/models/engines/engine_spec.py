"""What models have in common, by their engine and by what they do: inputs, sizes, options."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from jobs.models.inputs.input_size import MAX_TOKENS

Task = Literal[
    "any", "text", "embedding", "chat", "classification", "tokens", "reranking", "tensors"
]
"""What a model does, by which other doors let it in: any JSON to any JSON; a text to anything; a
text to its vector; a conversation to what is said next; a text to labels; a text's tokens to
labels; a query and texts to scores; named tensors to named tensors."""
TASKS: tuple[Task, ...] = get_args(Task)
GENERAL_TASKS = tuple(
    task for task in TASKS if task != "tensors"
)  # which have an engine of their own

TOKEN_BUCKETS = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)


@dataclass(frozen=True, slots=True)
class Param:
    """What a parameter or an option may be: of this JSON type, and in this range where it is a
    number, or among these where it is a word."""

    type: type
    wanted: str
    span: range | None = None
    among: tuple[str, ...] = ()

    def takes(self, value: Any) -> bool:
        # Not isinstance: true and false are no numbers.
        if type(value) is not self.type or (self.among and value not in self.among):
            return False
        return self.span is None or value in self.span


def _nothing(options: Mapping[str, Any]) -> Iterable[str]:
    return ()


@dataclass(frozen=True, slots=True)
class Options:
    """The options of an engine, as far as they can be checked without it.

    paths: those that name a file or a folder, from where the models file is. wrong: what is wrong
    with them together. lacks: what is wrong with the files that they name, on this machine.
    """

    known: Mapping[str, Param]
    paths: frozenset[str] = frozenset()
    wrong: Callable[[Mapping[str, Any]], Iterable[str]] = _nothing
    file_problems: Callable[[Mapping[str, Any]], Iterable[str]] = _nothing


def _takes_all(value: Any) -> str | None:
    return None


def _given_limits(entry: Mapping[str, Any], where: str, problems: list[str]) -> Any:
    return entry.get("limits", {})


def _declared(options: Mapping[str, Any]) -> int:
    longest: int = options.get("max_tokens", MAX_TOKENS)
    return longest


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """What every model of one engine, or of one engine and task, has in common.

    unit: what sizes count. params: the parameters it takes; all of them change the computation.
    size: of an input, by its params and the model's options. buckets: upper ends of the length
    buckets; empty where length doesn't matter. task: what they do, unless their entry says else.
    refuses: what is wrong with an input that is no text alone. longest: what inputs are cut to, by
    the model's options. pads: whether each row of a launch costs what its longest does, whatever
    its entry says. options: None where only the engine knows them. by_task: what they are where
    their entry says this task; where there is any, it must be one of them. limits: those of an
    entry, as it gives them and as they follow from its options; problems are added to the list.
    vocabulary: token ids below it may come in place of a text; 0: none may.
    """

    text_only: bool
    unit: str
    params: Mapping[str, Param]
    size: Callable[[Any, Mapping[str, Any], Mapping[str, Any]], int]
    buckets: tuple[int, ...] = ()
    task: Task = "any"
    input_problem: Callable[[Any], str | None] = _takes_all
    longest: Callable[[Mapping[str, Any]], int] = _declared
    pads: bool = False
    options: Options | None = None
    by_task: "Mapping[str, EngineSpec]" = field(default_factory=dict)
    limits: Callable[[Mapping[str, Any], str, list[str]], Any] = _given_limits
    vocabulary: int = 0

    def doing(self, task: str) -> "EngineSpec":
        """For models whose entry says this task; empty: none."""
        return self.by_task.get(task or self.task, self)
