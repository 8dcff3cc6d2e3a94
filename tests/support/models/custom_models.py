"""Models that people bring, small ones: their files, and a models file that declares them all."""

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.support.models.entries import toml

PYTHON = """
from workers.engines.protocol import InvalidInput, Transient

SAMPLES = ["a", "some more"]


def load():
    return {"suffix": "!"}


def predict(model, batch):
    if "raise" in batch:
        raise RuntimeError("can't stand it")
    if "later" in batch:
        raise Transient("in a moment")
    return [f"{value}{model['suffix']}" for value in batch]


def prepare(value):
    if value == "refuse":
        raise InvalidInput("not this one")
    if value == "stumble":
        return [][0]
    return value
"""

NETWORK = """
import torch


class Net(torch.nn.Module):
    def __init__(self, width=3):
        super().__init__()
        self.linear = torch.nn.Linear(4, width)
        self.register_buffer("shift", torch.arange(width).float(), persistent=False)

    def forward(self, x):
        return self.linear(x) + self.shift + torch.tensor([0.5])
"""

ON_TEXTS = (
    NETWORK
    + """

def preprocess(text):
    data = text.encode()
    return [len(data), sum(data) / 100, data.count(b"a"), 1]


def postprocess(row):
    return {"best": int(row.argmax()), "row": row.tolist()}
"""
)

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "cat", "dog", "word", "a", "the", "black", "white"]
WORDS += list("bcdefghijklmnopqrstuvwxyz") + [f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz"]
POSITIONS = 64
LABELS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
TASKS = ("classification", "tokens", "embedding", "reranking")


class Evil:
    """Object whose pickle, when it is loaded, makes a file `pwned`."""

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (Path("pwned"),)


def digest(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


def entry(name: str, engine: str, more: str = "", **options: Any) -> str:
    """A model of a models file; options must be strings or whole numbers."""
    lines = ["[[model]]", f'name = "{name}"', 'version = "1"', f'engine = "{engine}"', more]
    lines += [f"options.{key} = {toml(value)}" for key, value in options.items()]
    return "\n".join(lines) + "\n\n"


def network(width: int = 3) -> Any:
    """The network of NETWORK, always with the same weights."""
    import torch

    names: dict[str, Any] = {}
    exec(NETWORK, names)
    torch.manual_seed(0)
    return names["Net"](width).eval()


def save_network(folder: Path) -> None:
    """net.py, texts.py, net.safetensors."""
    from safetensors.torch import save_model

    (folder / "net.py").write_text(NETWORK)
    (folder / "texts.py").write_text(ON_TEXTS)
    save_model(network(), str(folder / "net.safetensors"))


def save_export(folder: Path, rows: Any = "dynamic") -> None:
    """net.pt2, exported.safetensors. rows: None for a batch of two alone."""
    import torch
    from safetensors.torch import save_file

    dynamic = ({0: torch.export.Dim.DYNAMIC},) if rows else None
    program = torch.export.export(network(), (torch.zeros(2, 4),), dynamic_shapes=dynamic)
    torch.export.save(program, folder / "net.pt2")
    save_file({**program.state_dict, **program.constants}, folder / "exported.safetensors")


def save_folder(folder: Path, task: str, *, scale: float = 1.0, **config: Any) -> Path:
    """A BERT of 32 numbers and two layers, with random weights, and its tokenizer."""
    import torch
    import transformers
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    transformers.utils.logging.disable_progress_bar()
    words = {word: n for n, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordPiece(words, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=POSITIONS,
    ).save_pretrained(folder)
    labels = {"classification": ["bad", "fair", "good"], "tokens": LABELS, "reranking": ["score"]}
    named = labels.get(task, ["none"])
    made = transformers.BertConfig(
        vocab_size=len(words),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=POSITIONS,
        initializer_range=0.2 * scale,
        id2label=dict(enumerate(named)),
        label2id={label: n for n, label in enumerate(named)},
        **config,
    )
    torch.manual_seed(7)
    auto_class(task, bert=True)(made).eval().save_pretrained(folder)
    return folder


def auto_class(task: str, *, bert: bool = False) -> Callable[..., Any]:
    """The class of transformers that does this."""
    import transformers

    heads = {"tokens": "ForTokenClassification", "embedding": "Model" if bert else ""}
    head = heads.get(task, "ForSequenceClassification")
    found: Callable[..., Any] = getattr(transformers, f"Bert{head}" if bert else f"AutoModel{head}")
    return found


def checksums(folder: Path) -> dict[str, str]:
    """The options that declare the files of a folder of Hugging Face."""
    files = {"sha256": "model.safetensors", "config_sha256": "config.json",
             "tokenizer_sha256": "tokenizer.json"}  # fmt: skip
    return {option: digest(folder / name) for option, name in files.items()}


#: Options of a folder whose files aren't looked at.
UNCHECKED = {"sha256": "0", "config_sha256": "0", "tokenizer_sha256": "0"}


def save(folder: Path) -> Path:
    """All of them; returns the models file."""
    (folder / "own.py").write_text(PYTHON)
    save_network(folder)
    save_export(folder)
    text = entry("python", "python", file="own.py", file_sha256=digest(folder / "own.py"))
    text += entry("python-text", "python", 'task = "text"', file="own.py")
    on_torch = {"threads": 1}  # many tests share few cores
    net, exported = (
        {"weights": name, "sha256": digest(folder / name)} | on_torch
        for name in ("net.safetensors", "exported.safetensors")
    )
    exported |= {"export": "net.pt2", "export_sha256": digest(folder / "net.pt2")}
    text += entry("torch", "torch", "options.shape = [4]", file="net.py", build="Net", **net)
    text += entry("torch-text", "torch", 'task = "text"', file="texts.py", build="Net", **net)
    text += entry("export", "torch", **exported)
    for task in TASKS:
        path = save_folder(folder / task, task)
        more = f'task = "{task}"\nlimits.max_batch = 8'
        text += entry(task, "huggingface", more, path=task, **checksums(path), **on_torch)
    (folder / "models.toml").write_text(text)
    return folder / "models.toml"
