"""Adapters (LoRA) of a model: their declarations, and the files of one, read without torch.

[[model.adapters]]
name = "legal"
path = "adapters/legal"  # below the models file; or s3://bucket/prefix
sha256 = "…"             # of adapter_model.safetensors

or, in place of path and sha256, the digest of its artifact in the registry:

artifact = "sha256:…"

The layout is PEFT's: adapter_config.json and adapter_model.safetensors.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from json import JSONDecodeError, loads
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field, StrictBool, ValidationInfo

from jobs.models.artifact_paths import name_inside
from jobs.models.pricing import Price
from jobs.problems import fits

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
SLOTS = 4
"""Adapters that a worker holds of one model, unless its options say `adapter_slots`."""
MOST_RANK = 256
S3 = "s3://"
MATRIX = re.compile(r"(?:base_model\.model\.)?(.+)\.lora_([AB])(?:\.default)?\.weight")
"""Names in the file of weights: layer, and which of its two matrices."""

_MARKS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_HEX = frozenset("0123456789abcdefABCDEF")
_Name = Annotated[
    str,
    Field(description="a name"),
    fits(
        lambda name: name and _MARKS.issuperset(name), "of letters, digits, '.', '_' and '-' alone"
    ),
]
_Sha256 = Annotated[
    str,
    fits(
        lambda text: not text or (len(text) == 64 and _HEX.issuperset(text)),
        "64 hexadecimal digits, as `sha256sum` shows them",
    ),
]


_Digest = Annotated[
    str,
    fits(
        lambda text: not text or re.fullmatch("sha256:[0-9a-f]{64}", text),
        "the digest of an artifact, sha256:… in lower case",
    ),
]


def _below_folder(path: str, info: ValidationInfo) -> str:
    if not path or path.startswith(S3) or not info.context:
        return path
    return str(info.context.below(path))


@dataclass(frozen=True, slots=True)
class Adapter:
    """One adapter of a model's entry."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    name: _Name
    #: folder, or s3://bucket/prefix; "" where another server has it
    path: Annotated[str, AfterValidator(_below_folder)] = ""
    sha256: _Sha256 = ""  #: of the weights
    config_sha256: _Sha256 = ""  #: of adapter_config.json; "": it is not verified
    pinned: StrictBool = False  #: never evicted once it is loaded
    #: tenants that may use it; None: all
    tenants: Annotated[tuple[str, ...] | None, Field(strict=False)] = None
    price: Price | None = None  #: None: that of its model
    artifact: _Digest = ""  #: of its files in the registry; "": path and sha256 name them

    def allows(self, tenant: str) -> bool:
        """Returns True if a tenant may use it."""
        return self.tenants is None or tenant in self.tenants

    @property
    def identity(self) -> str:
        """Text that differs between adapters, and between two versions of one."""
        files = self.artifact or f"{self.sha256}/{self.config_sha256}"
        return f"{self.name}/{files}"

    def staged(self, snapshot: Path, files: Mapping[str, str]) -> "Adapter":
        """Returns it with its files in a snapshot of its artifact. files: SHA-256 of each, by path.

        Raises ValueError where one is missing.
        """
        if missing := {CONFIG, WEIGHTS} - files.keys():
            raise ValueError(f"its artifact has no {min(missing)} at its root")
        weights, config = files[WEIGHTS], files[CONFIG]
        return replace(self, path=str(snapshot), sha256=weights, config_sha256=config)

    def refused(self, problem: str, *, transient: bool) -> "RefusedAdapter":
        """Returns it as one whose files must not be loaded."""
        same = {one.name: getattr(self, one.name) for one in fields(Adapter)}
        return RefusedAdapter(**same, problem=problem, transient=transient)

    @property
    def needs_staging(self) -> bool:
        """True until its files are in the cache: those of its artifact, or of its base's."""
        return bool(self.artifact and not self.path) or name_inside(self.path) is not None

    @property
    def is_remote(self) -> bool:
        """True where its files lie in S3."""
        return self.path.startswith(S3)


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedAdapter(Adapter):
    """Adapter that failed its verification: its requests fail."""

    problem: str  #: names the file or the key
    transient: bool  #: True where it may be loaded soon

    @property
    def needs_staging(self) -> bool:
        """Implements `Adapter.needs_staging`."""
        return False


def adapted_key(key: str, adapter: str) -> str:
    """Returns the name@version of a version with an adapter."""
    name, _, version = key.rpartition("@")
    return f"{name}:{adapter}@{version}"


def problems_of(adapters: Sequence[Adapter], *, has_files: bool, slots: int) -> Iterator[str]:
    """Yields what is wrong with the adapters of one model. has_files: its engine loads them."""
    names = Counter(adapter.name for adapter in adapters)
    for name, count in names.items():
        if count > 1:
            yield f"adapters: {name!r} is declared {count} times"
    for adapter in adapters:
        if not has_files and (adapter.path or adapter.sha256 or adapter.artifact):
            yield (
                f"adapters: {adapter.name}: the server has its files; leave path, sha256 and "
                "artifact out"
            )
        if adapter.artifact and (adapter.path or adapter.sha256):
            yield f"adapters: {adapter.name}: its artifact has its files; leave path and sha256 out"
        for field in ("path", "sha256") if has_files and not adapter.artifact else ():
            if not getattr(adapter, field):
                yield f"adapters: {adapter.name}: {field} is missing"
    pinned = sum(adapter.pinned for adapter in adapters)
    if has_files and pinned >= slots and pinned < len(adapters):
        yield (
            f"adapters: {pinned} are pinned, which leaves no slot for the others: raise "
            f"options.adapter_slots above {pinned}, or pin fewer"
        )


def folder_problems(adapter: Adapter) -> Iterator[str]:
    """Yields what is wrong with an adapter's folder on this machine; loads no weights."""
    if not adapter.path or adapter.is_remote:
        return
    folder = Path(adapter.path)
    if not (folder / WEIGHTS).is_file():
        yield f"adapters: {adapter.name}: there is no file {folder / WEIGHTS}"
    try:
        read_config(folder)
    except ValueError as error:
        yield f"adapters: {adapter.name}: {error}"


@dataclass(frozen=True, slots=True)
class LoraConfig:
    """Contents of adapter_config.json that count."""

    rank: int
    scale: float  #: factor of B A

    @classmethod
    def from_json(cls, config: Mapping[str, Any], where: Path) -> "LoraConfig":
        """Reads a configuration. Raises ValueError for what isn't supported."""
        kind = config.get("peft_type", "LORA")
        if kind != "LORA":
            raise ValueError(f"{where}: peft_type is {kind!r}; LORA is supported")
        for name, harmless in _UNSUPPORTED.items():
            if config.get(name) not in (None, *harmless):
                raise ValueError(f"{where}: {name} is not supported: merge it, or train without")
        rank, alpha = config.get("r"), config.get("lora_alpha", config.get("r"))
        if type(rank) is not int or not 1 <= rank <= MOST_RANK:
            raise ValueError(f"{where}: r must be a whole number, 1 to {MOST_RANK}, not {rank!r}")
        if type(alpha) not in (int, float):
            raise ValueError(f"{where}: lora_alpha must be a number, not {alpha!r}")
        root = rank**0.5 if config.get("use_rslora") else rank
        return cls(rank, alpha / root)


_UNSUPPORTED: Mapping[str, tuple[Any, ...]] = {
    "use_dora": (False,),
    "bias": ("none",),
    "fan_in_fan_out": (False,),
    "modules_to_save": ([],),
    "rank_pattern": ({},),
    "alpha_pattern": ({},),
    "lora_bias": (False,),
    "alora_invocation_tokens": ([],),
    "trainable_token_indices": ([], {}),
}
"""Fields of adapter_config.json, and their values that change nothing."""


def read_config(folder: Path) -> LoraConfig:
    """Reads the configuration of an adapter. Raises ValueError."""
    where = folder / CONFIG
    try:
        config = loads(where.read_text())
    except OSError as error:
        raise ValueError(f"{where} can't be read: {error.strerror}") from error
    except (UnicodeDecodeError, JSONDecodeError) as error:
        raise ValueError(f"{where} is not valid JSON: {error}") from error
    if not isinstance(config, dict):
        raise ValueError(f"{where} holds no JSON object")
    return LoraConfig.from_json(config, where)
