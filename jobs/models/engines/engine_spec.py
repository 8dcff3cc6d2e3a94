"""Properties that models have in common, by their engine and task: inputs, sizes, options."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

from pydantic import BaseModel, ConfigDict, ValidationInfo, model_validator

from jobs.models import artifact_paths
from jobs.models.inputs.input_size import MAX_TOKENS

Task = Literal[
    "any",  # any JSON to any JSON
    "text",  # a text to any JSON
    "embedding",  # a text to its vector
    "chat",  # a conversation to its next message
    "classification",  # a text to labels
    "tokens",  # the tokens of a text to labels
    "reranking",  # a query and texts to scores
    "image_classification",  # an image to labels
    "tensors",  # named tensors to named tensors
]
"""Inputs and outputs of a model: they decide which compatible APIs serve it."""
TASKS: tuple[Task, ...] = get_args(Task)
_OF_ONE_ENGINE = ("image_classification", "tensors")
GENERAL_TASKS = tuple(task for task in TASKS if task not in _OF_ONE_ENGINE)

TOKEN_BUCKETS = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)


@dataclass(frozen=True, slots=True)
class Param:
    """Values that a parameter of calls and items takes."""

    type: type  #: JSON type
    expected: str  #: completes "must be …"
    span: range | None = None  #: range of a number

    @classmethod
    def whole(cls, unit: str, least: int, most: int) -> "Param":
        """Returns a parameter that is a whole number from `least` to `most`."""
        return cls(int, f"a whole number of {unit}, {least} to {most}", range(least, most + 1))

    def accepts(self, value: Any) -> bool:
        """Returns True if the value may be used."""
        # Not isinstance: true and false are no numbers.
        return type(value) is self.type and (self.span is None or value in self.span)


TRUE_OR_FALSE = Param(bool, "true or false")


@dataclass(frozen=True, slots=True)
class EntryContext:
    """Parts of an entry that its options are checked with."""

    #: of the models file, or the root of the entry's artifact: relative paths begin there
    folder: Path
    task: Task
    limits: Mapping[str, Any]  #: as the file has them

    @property
    def in_artifact(self) -> bool:
        """True for an entry whose files are in an artifact, which has their SHA-256."""
        return artifact_paths.FOLDER in self.folder.parents

    def below(self, path: str) -> str:
        """Returns the path of a file that an option names. Raises ValueError."""
        return artifact_paths.below(self.folder, path)


class EngineOptions(BaseModel):
    """Options of a model's entry that can be checked without its engine."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    requires: ClassVar[Mapping[str, tuple[str, ...]]] = {}  #: options that an option needs
    files: ClassVar[tuple[str, ...]] = ()  #: options that are paths of files
    #: options that are the SHA-256 of a file: option of its path, and the file below that
    digests: ClassVar[Mapping[str, tuple[str, str]]] = {}

    @model_validator(mode="before")
    @classmethod
    def _leave_digests_to_the_manifest(cls, values: Any, info: ValidationInfo) -> Any:
        entry: EntryContext | None = info.context
        if entry is None or not entry.in_artifact or not isinstance(values, dict):
            return values
        return {name: "" for name, (path, _) in cls.digests.items() if path in values} | values

    @model_validator(mode="after")
    def _check(self, info: ValidationInfo) -> "EngineOptions":
        if conflicts := list(self.conflicts(info.context)):
            raise ValueError(*conflicts)
        return self

    def conflicts(self, entry: EntryContext | None) -> Iterator[str]:
        """Yields conflicts between options and, where its entry is given, with its limits."""
        for name, others in self.requires.items():
            for other in others if name in self.model_fields_set else ():
                if other not in self.model_fields_set:
                    yield f"{name} goes with {other}, which is missing"

    def one_of(self, *names: str) -> Iterator[str]:
        """Yields a conflict unless exactly one of these options is set."""
        given = [name for name in names if name in self.model_fields_set]
        if len(given) != 1:
            set_ones = f"there are {' and '.join(given)}" if given else "there is none"
            yield f"one of {', '.join(names)} must be set; {set_ones}"

    def file_problems(self, task: Task) -> Iterator[str]:
        """Yields what is wrong with the files that they name, on this machine."""
        for name in self.files:
            if (path := getattr(self, name)) and not Path(path).is_file():
                yield f"options.{name}: there is no file {path}"

    def limits(self, task: Task) -> dict[str, Any]:
        """Returns the limits that follow from the options."""
        return {}


def no_problem(value: Any) -> str | None:
    """Finds no fault in any input."""
    return None


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """Properties of all models of one engine, or of one engine and task."""

    text_only: bool  #: inputs are texts
    unit: str  #: unit of sizes
    params: Mapping[str, Param]  #: parameters of calls and items; all change the computation
    #: size of an input, by its parameters and the model's options
    size: Callable[[Any, Mapping[str, Any], Mapping[str, Any]], int]
    buckets: tuple[int, ...] = ()  #: upper ends of the length buckets; (): length doesn't matter
    task: Task = "any"  #: unless an entry says another
    input_problem: Callable[[Any], str | None] = no_problem  #: for inputs that are no texts
    #: size that inputs are cut to, by the model's options
    longest: Callable[[Mapping[str, Any]], int] = lambda options: options.get(
        "max_tokens", MAX_TOKENS
    )
    #: most tokens of a sequence, by the model's options; 0: not known, or without such a bound
    context: Callable[[Mapping[str, Any]], int] = lambda options: 0
    #: True where each row of a launch costs what its longest does, by the model's options
    pads: Callable[[Mapping[str, Any]], bool] = lambda options: options.get("layout") == "padded"
    shapes: bool = False  #: buckets are shapes: an input fits no launch of another, large or small
    options: type[EngineOptions] | None = None  #: None: only the engine knows them
    by_task: "Mapping[Any, EngineSpec]" = field(default_factory=dict)  #: tasks that entries choose
    #: spec of models whose options say `stream`; None: none may
    streaming: "EngineSpec | None" = None
    generates: bool = False  #: its engine is a Generator: it makes tokens step by step
    #: adapters (LoRA) of models: loaded by the engine from files, or known to a server by name
    adapters: Literal["", "files", "names"] = ""
    vocabulary: int = 0  #: token ids below it may come in place of a text; 0: none may
    #: limits of launches that an entry leaves out are measured when the model is loaded: it is our
    #: own network, whose memory grows with the size of a launch alone
    measured: bool = False
    pooled: bool = False  #: workers of their own may prepare its inputs (`prepare = "pool"`)
    takes_bytes: bool = False  #: `prepare` takes bytes too: fetched ones, in place of an address

    def for_task(self, task: str) -> "EngineSpec":
        """Returns the spec of models whose entry says this task; "": none."""
        return self.by_task.get(task or self.task, self)
