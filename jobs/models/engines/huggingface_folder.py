"""Folders as Hugging Face's libraries save them, read without those: length of texts, counts of
tokens, and fitness for a task."""

from collections.abc import Iterator, Mapping
from functools import cache
from json import JSONDecodeError, loads
from pathlib import Path
from typing import Any

from jobs.artifacts.declared import Untrusted, verified
from jobs.errors import NotConfigured
from jobs.models import artifact_paths
from jobs.models.inputs.input_size import guessed_tokens, open_tokenizer

WEIGHTS = "model.safetensors"
TOKENIZER = "tokenizer.json"
CONFIG = "config.json"
MOST_TOKENS = 8192  # that any text is cut to
DIGESTS = {
    "sha256": ("path", WEIGHTS),
    "config_sha256": ("path", CONFIG),
    "tokenizer_sha256": ("path", TOKENIZER),
}
"""Options that are the SHA-256 of a file of the folder, which `path` names."""

_UNLIMITED = 10**6  # tokens; tokenizers without a limit write a larger number
_UNSAID = 512  # tokens, where no file of the folder says it
_CHARACTERS_A_TOKEN = 8  # a longer text is nearly always one that is cut
COUNTED_FROM_PADDING = {
    "camembert", "data2vec-text", "ibert", "longformer", "mpnet", "roberta",
    "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl", "xmod",
}  # fmt: skip
"""Model types whose first position is the one after that of the padding."""
DECODERS = {"qwen3"}
"""Model types whose head reads a text by its last token, to which alone all others are known."""
PACKED = DECODERS | {
    "bert", "camembert", "distilbert", "electra", "modernbert", "mpnet", "roberta", "xlm-roberta",
}  # fmt: skip
"""Model types whose launches hold no padding."""
_HEADS = {
    "classification": "ForSequenceClassification",
    "reranking": "ForSequenceClassification",
    "tokens": "ForTokenClassification",
    "chat": "ForCausalLM",
}


def read(folder: Path, name: str) -> dict[str, Any]:
    """Reads a JSON object of the folder; {} where there is no such file. Raises ValueError."""
    try:
        content = loads((folder / name).read_text())
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, JSONDecodeError) as error:
        raise ValueError(f"{folder / name} can't be read: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{folder / name} holds no JSON object")
    return content


def longest(options: Mapping[str, Any]) -> int:
    """Returns the tokens that a text is cut to, special ones included.

    The least of its model's, its tokenizer's and `max_tokens`. Raises NotConfigured where the
    folder is missing, or its files aren't the declared ones.
    """
    most: int = options.get("max_tokens", MOST_TOKENS)
    if _is_elsewhere(options):
        return most
    return min(_longest(options["path"], options.get("config_sha256", "")), most)


def context_tokens(options: Mapping[str, Any]) -> int:
    """Returns the most tokens of a sequence of a model that generates: `context_tokens`, but no
    more than the model has; 0: not known. Raises NotConfigured as `longest`."""
    asked: int = options.get("context_tokens", 0)
    if not options.get("path") or _is_elsewhere(options):
        return asked
    own = _positions(options["path"], options.get("config_sha256", ""))
    return min(asked or own, own or asked)


@cache
def _positions(path: str, sha256: str) -> int:
    config = read(_here(Path(path) / CONFIG, sha256).parent, CONFIG)
    inner = config.get("text_config")
    config = inner if isinstance(inner, dict) else config
    names = ["max_position_embeddings"]
    if config.get("use_sliding_window", True):
        names.append("sliding_window")
    known = [n for name in names if type(n := config.get(name)) is int and n > 0]
    return min(known, default=0)


@cache
def _longest(path: str, sha256: str) -> int:
    folder = Path(path)
    config = read(_here(folder / CONFIG, sha256).parent, CONFIG)
    positions = config.get("max_position_embeddings")
    if isinstance(positions, int) and config.get("model_type") in COUNTED_FROM_PADDING:
        positions -= (config.get("pad_token_id") or 0) + 1
    said = (
        positions,
        read(folder, "tokenizer_config.json").get("model_max_length"),
        read(folder, "sentence_bert_config.json").get("max_seq_length"),
    )
    known = [int(n) for n in said if isinstance(n, int | float) and 0 < n < _UNLIMITED]
    return min([*known, MOST_TOKENS]) if known else _UNSAID


def tokens(value: Any, params: Mapping[str, Any], options: Mapping[str, Any]) -> int:
    """Returns the tokens of a text, special ones included, after cutting. Raises NotConfigured."""
    most = longest(options)
    cut: int = min(most, params.get("truncate", most))
    text = str(value)
    if _is_elsewhere(options):
        return min(guessed_tokens(text), cut)
    if len(text) > _CHARACTERS_A_TOKEN * most:
        return cut
    tokenizer = _tokenizer(options["path"], options.get("tokenizer_sha256", ""), most)
    return max(1, min(len(tokenizer.encode(text).ids), cut))


def pads(options: Mapping[str, Any]) -> bool:
    """Returns True where a launch is padded to its longest text: by the option `layout`, or where
    the architecture takes texts in no other way. Raises NotConfigured.

    Of files that aren't here it is unknown, and True: a worker that packs serves lanes by length as
    well, but one that pads needs them."""
    if layout := options.get("layout"):
        return bool(layout == "padded")
    if _is_elsewhere(options):
        return True
    return not packs(_model_type(options["path"], options.get("config_sha256", "")))


def packs(model_type: str) -> bool:
    """Returns True for an architecture whose launches need no padding."""
    return model_type in PACKED


@cache
def _model_type(path: str, sha256: str) -> str:
    return str(read(_here(Path(path) / CONFIG, sha256).parent, CONFIG).get("model_type"))


def _is_elsewhere(options: Mapping[str, Any]) -> bool:
    """Returns True for the files of an artifact, which workers alone have: an api estimates sizes,
    and a worker measures again."""
    return artifact_paths.name_inside(options["path"]) is not None


@cache
def _tokenizer(path: str, sha256: str, most: int) -> Any:
    return open_tokenizer(_here(Path(path) / TOKENIZER, sha256), most)


def _here(file: Path, sha256: str) -> Path:
    """Returns a file that is the declared one, if any is; a missing one is not cached, since it may
    come."""
    if not file.is_file():
        raise NotConfigured(f"{file} is not here; an api needs it to count tokens")
    try:
        return verified(file, sha256) if sha256 else file
    except Untrusted as error:
        raise NotConfigured(str(error)) from error


def file_problems(task: str, path: str, layout: str = "") -> Iterator[str]:
    """Yields what is wrong with the folder for this task and layout of texts."""
    folder = Path(path)
    if not folder.is_dir():
        yield f"options.path: there is no folder {folder}"
        return
    for name in (CONFIG, TOKENIZER, WEIGHTS):
        if not (folder / name).is_file():
            yield f"{folder} has no {name}{_hint(folder, name)}"
    try:
        config = read(folder, CONFIG)
    except ValueError as error:
        yield str(error)
        return
    if no := misfit(task, config):
        yield f"{folder}: {no}"
    if layout == "packed" and not packs(kind := str(config.get("model_type"))):
        yield f"{folder} is a {kind}, which takes padded texts alone; leave out layout"


def misfit(task: str, config: Mapping[str, Any]) -> str | None:
    """Returns why a model with this config.json can't do the task, or None."""
    head, architectures = _HEADS.get(task), config.get("architectures") or []
    if head and architectures and not any(str(name).endswith(head) for name in architectures):
        return f"{', '.join(map(str, architectures))} does no {task}; that takes a …{head}"
    labels = len(config.get("id2label") or ()) or 2
    if task == "reranking" and labels != 1:
        return f"reranking takes a model with one label, this one has {labels}"
    return None


def _hint(folder: Path, name: str) -> str:
    if name == TOKENIZER:
        return "; tokenizer.save_pretrained of a fast tokenizer writes it"
    if name != WEIGHTS:
        return ""
    if any(folder.glob("*.safetensors.index.json")):
        return ", but parts; save_pretrained(…, max_shard_size='100GB') writes one file"
    if any(folder.glob("*.bin")):
        return ", but pickled weights, which are not loaded; save_pretrained writes safetensors"
    return ""
