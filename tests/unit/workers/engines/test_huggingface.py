"""Folders of Hugging Face's libraries: the same outputs as plain transformers, alone or with batch
mates, and nothing from outside of the folder."""

import json
import pickle
import shutil
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from jobs.artifacts.declared import Untrusted
from jobs.errors import NotConfigured
from jobs.models.engines import custom_engines as own_models
from jobs.models.engines import huggingface_folder
from jobs.models.model import Model
from tests.support.models import custom_models
from workers.engines.huggingface import HuggingFace
from workers.engines.protocol import InvalidInput, Prepared

pytestmark = pytest.mark.heavy

TEXTS = ["a cat", "", "the black dog saw a white cat " * 3, "word " * 500, "zebra", "the dog"]
TOLERANCE = {"rtol": 0, "atol": 1e-5}
Engines = Mapping[str, HuggingFace]


@pytest.fixture(scope="module")
def home(own_models: Path) -> Path:
    return own_models.parent


def load(folder: Path, task: str, **options: Any) -> HuggingFace:
    """Its engine; unless options say otherwise, one that cuts texts that are too long."""
    given = {"path": str(folder), "device": "cpu", "threads": 1} | custom_models.checksums(folder)
    return HuggingFace(task=task, **{"on_too_long": "truncate"} | given | options)


@pytest.fixture(scope="module")
def engines(home: Path) -> Engines:
    return {task: load(home / task, task) for task in custom_models.TASKS}


def copied(folder: Path, to: Path, **changes: Any) -> Path:
    """A folder of its own, with changes in its config.json; None: without that key."""
    shutil.copytree(folder, to)
    config = json.loads((to / "config.json").read_text()) | changes
    left = {key: value for key, value in config.items() if value is not None}
    (to / "config.json").write_text(json.dumps(left))
    return to


def outputs(engine: HuggingFace, inputs: list[Any], **params: Any) -> list[Any]:
    made = engine.prepare(inputs, params)
    assert all(isinstance(one, Prepared) for one in made), made
    return list(engine.run([one.data for one in made], params))


def prepared(engine: HuggingFace, value: Any, **params: Any) -> Prepared:
    [made] = engine.prepare([value], params)
    assert isinstance(made, Prepared), made
    return made


def plain(folder: Path, task: str, text: str, pair: str | None = None) -> Any:
    """What transformers makes of it, without a batch and without padding."""
    network = custom_models.auto_class(task).from_pretrained(folder, local_files_only=True).eval()
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(custom_models.POSITIONS)
    encoding = tokenizer.encode(text, pair)
    ids, types = (torch.tensor([its]) for its in (encoding.ids, encoding.type_ids))
    with torch.inference_mode():
        return network(input_ids=ids, token_type_ids=types)


def test_labels_are_those_of_transformers_or_the_best(engines: Engines, home: Path) -> None:
    for text, labels in zip(TEXTS, outputs(engines["classification"], TEXTS), strict=True):
        wanted = plain(home / "classification", "classification", text).logits[0].softmax(0)
        assert [one["score"] for one in labels] == pytest.approx(sorted(wanted.tolist())[::-1])
        names = ["bad", "fair", "good"]
        assert labels[0]["label"] == names[int(wanted.argmax())]
        assert {one["label"] for one in labels} == set(names)
    [whole] = outputs(engines["classification"], ["a cat"])
    [best] = outputs(engines["classification"], ["a cat"], top_k=2)
    assert best == whole[:2]
    assert len(whole) == 3


def test_several_labels_of_a_text_are_scored_each_by_itself(tmp_path: Path) -> None:
    several = {"problem_type": "multi_label_classification"}
    folder = custom_models.save_folder(tmp_path, "classification", **several)
    [labels] = outputs(load(folder, "classification"), ["a cat"])
    wanted = plain(folder, "classification", "a cat").logits[0].sigmoid()
    assert [one["score"] for one in labels] == pytest.approx(sorted(wanted.tolist())[::-1])


def test_stretches_of_tokens_are_those_of_the_pipeline(engines: Engines, home: Path) -> None:
    import transformers

    folder = home / "tokens"
    pipeline = transformers.pipeline(
        "token-classification",
        model=custom_models.auto_class("tokens").from_pretrained(folder),
        tokenizer=transformers.AutoTokenizer.from_pretrained(folder),
        aggregation_strategy="simple",
        device="cpu",
    )
    texts = [text for text in TEXTS if text and len(text) < 200]
    found = 0
    for text, spans in zip(texts, outputs(engines["tokens"], texts), strict=True):
        wanted = pipeline(text)
        found += len(wanted)
        assert [(s["label"], s["start"], s["end"]) for s in spans] == [
            (w["entity_group"], w["start"], w["end"]) for w in wanted
        ]
        assert [s["score"] for s in spans] == pytest.approx([float(w["score"]) for w in wanted])
        assert all(s["text"] == text[s["start"] : s["end"]] for s in spans)
    assert found > 5


def test_vectors_are_the_mean_over_tokens(engines: Engines, home: Path) -> None:
    raw = outputs(engines["embedding"], TEXTS, normalize=False)
    unit = outputs(engines["embedding"], TEXTS)
    for text, vector, scaled in zip(TEXTS, raw, unit, strict=True):
        wanted = plain(home / "embedding", "embedding", text).last_hidden_state[0].mean(0).numpy()
        np.testing.assert_allclose(vector, wanted, **TOLERANCE)
        np.testing.assert_allclose(scaled, wanted / np.linalg.norm(wanted), **TOLERANCE)


@pytest.mark.parametrize(
    ("said", "pooling"),
    [
        (None, "mean"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}, "mean"),
        ({"word_embedding_dimension": 32, "pooling_mode": "cls"}, "cls"),
        ({"pooling_mode_mean_tokens": False, "pooling_mode_lasttoken": True}, "last"),
        ({"pooling_mode_max_tokens": True}, None),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, None),
    ],
)
def test_a_folder_says_how_its_vectors_are_pooled(
    home: Path, tmp_path: Path, said: dict[str, Any] | None, pooling: str | None
) -> None:
    folder = copied(home / "embedding", tmp_path / "pooled")
    if said is not None:
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(said))
    if pooling is None:
        with pytest.raises(ValueError, match="mean, cls and lasttoken are known"):
            load(folder, "embedding")
        return
    [vector] = outputs(load(folder, "embedding"), ["a cat"], normalize=False)
    hidden = plain(folder, "embedding", "a cat").last_hidden_state[0]
    wanted = {"cls": hidden[0], "last": hidden[-1], "mean": hidden.mean(0)}[pooling]
    np.testing.assert_allclose(vector, wanted, **TOLERANCE)
    [declared] = outputs(load(folder, "embedding", pooling="cls", normalize=False), ["a cat"])
    np.testing.assert_allclose(declared, hidden[0], **TOLERANCE)


def test_each_document_is_scored_with_its_query(engines: Engines, home: Path) -> None:
    items = [
        {"query": "a cat", "documents": TEXTS},
        {"query": "word " * 100, "documents": ["the dog", "word " * 100]},
        {"query": "dog", "documents": []},
        {"query": "", "documents": ["dog"]},
    ]
    for item, scores in zip(items, outputs(engines["reranking"], items), strict=True):
        wanted = [
            plain(home / "reranking", "reranking", item["query"], text).logits[0, 0].sigmoid()
            for text in item["documents"]
        ]
        assert scores == pytest.approx([float(one) for one in wanted], abs=1e-5)


def test_scores_are_as_the_model_gives_them_where_that_is_said(
    engines: Engines, home: Path, tmp_path: Path
) -> None:
    item = {"query": "a cat", "documents": ["a dog"]}
    [[score]] = outputs(engines["reranking"], [item])
    bare = np.log(score / (1 - score))
    [[declared]] = outputs(load(home / "reranking", "reranking", activation="none"), [item])
    assert declared == pytest.approx(bare, abs=1e-4)
    said = {"activation_fn": "torch.nn.modules.linear.Identity"}
    folder = copied(home / "reranking", tmp_path / "bare", sentence_transformers=said)
    assert outputs(load(folder, "reranking"), [item])[0] == pytest.approx([bare], abs=1e-4)


@pytest.mark.parametrize("task", custom_models.TASKS)
def test_an_output_does_not_depend_on_batch_mates(engines: Engines, task: str) -> None:
    inputs: list[Any] = TEXTS
    if task == "reranking":
        inputs = [{"query": "a cat", "documents": TEXTS[n:]} for n in range(len(TEXTS))]
    together = outputs(engines[task], inputs)
    alone = [outputs(engines[task], [value])[0] for value in inputs]
    assert [shown(one) for one in together] == [pytest.approx(shown(it), abs=1e-5) for it in alone]


def shown(output: Any) -> Any:
    """The numbers of an output, in one list."""
    if isinstance(output, np.ndarray) or (output and not isinstance(output[0], dict)):
        return [float(n) for n in output]
    return [n for one in output for n in one.values() if not isinstance(n, str)]


def test_many_pairs_go_through_the_network_in_parts(
    engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = [{"query": "a", "documents": TEXTS}, {"query": "the dog", "documents": TEXTS[::-1]}]
    whole = outputs(engines["reranking"], items)
    monkeypatch.setattr("workers.engines.huggingface._PAIR_TOKENS", 70)
    for one, other in zip(outputs(engines["reranking"], items), whole, strict=True):
        assert one == pytest.approx(other, abs=1e-5)


@pytest.mark.parametrize("truncate", [3, 10, 64, 500])
def test_a_text_is_cut_with_its_special_tokens_kept(engines: Engines, truncate: int) -> None:
    made = prepared(engines["classification"], "word " * 500, truncate=truncate)
    [row] = made.data
    assert made.size == len(row) == min(truncate, custom_models.POSITIONS)
    assert made.truncated == 502 - made.size
    assert (row.ids[0], row.ids[-1]) == (2, 3)
    assert set(row.ids[1:-1]) == {custom_models.WORDS.index("word")}


def test_max_tokens_cuts_earlier(home: Path) -> None:
    engine = load(home / "tokens", "tokens", max_tokens=12)
    made = prepared(engine, "word " * 500)
    assert made.size == 12
    assert [span["end"] for span in engine.run([made.data], {})[0]][-1:] in ([], [49])


@pytest.mark.parametrize("task", ["classification", "tokens", "embedding"])
def test_a_text_that_is_too_long_fails_alone(home: Path, task: str) -> None:
    options = {"path": str(home / task)} | custom_models.checksums(home / task)
    engine = HuggingFace(task=task, device="cpu", threads=1, **options)
    most = custom_models.POSITIONS
    texts = ["a cat", "word " * (most - 1), "word " * (most - 2), None, "word " * 5000]
    first, beyond, full, invalid, last = engine.prepare(texts, {})
    assert isinstance(first, Prepared)
    assert isinstance(full, Prepared)
    assert (first.truncated, full.size, full.truncated) == (0, most, 0)
    assert len(engine.run([first.data, full.data], {})) == 2
    for refused, tokens in ((beyond, most + 1), (last, 5002)):
        assert isinstance(refused, InvalidInput)
        assert f"maximum context length is {most} tokens" in str(refused)
        assert f"you requested {tokens} tokens" in str(refused)
    assert "must be a string" in str(invalid)
    cut = prepared(engine, "word " * 5000, truncate=500)  # was asked for: cut to what it takes
    assert (cut.size, cut.truncated) == (most, 5002 - most)
    assert all(isinstance(one, Prepared) for one in engine.prepare(engine.samples(), {}))


def test_pairs_that_are_too_long_fail_alone_or_are_counted(home: Path, engines: Engines) -> None:
    most, options = custom_models.POSITIONS, custom_models.checksums(home / "reranking")
    path = str(home / "reranking")
    strict = HuggingFace(task="reranking", path=path, device="cpu", threads=1, **options)
    fits = {"query": "a cat", "documents": ["word " * (most - 5), "dog"]}
    long = {"query": "a cat", "documents": ["dog"] * 70 + ["word " * 100, "word " * (most - 4)]}
    both = {"query": "dog " * 90, "documents": ["word " * 100]}
    whole, *refused = strict.prepare([fits, long, both], {})
    assert isinstance(whole, Prepared)
    assert [str(one).partition(" is too long")[0] for one in refused] == [
        "document 70 with the query", "document 0 with the query",
    ]  # fmt: skip
    assert "you requested 105 tokens" in str(refused[0])
    assert all(isinstance(one, Prepared) for one in strict.prepare(strict.samples(), {}))
    counted = engines["reranking"].prepare([fits, long, both], {})
    cut = [one.truncated for one in counted if isinstance(one, Prepared)]
    assert cut == [0, 105 - most + 1, 193 - most]


def test_what_is_no_input_is_refused_in_its_place(engines: Engines) -> None:
    wrong = [None, 5, ["a"], "\ud800", {"query": "a"}]
    for task, good in (("tokens", "a"), ("reranking", {"query": "a", "documents": []})):
        made = engines[task].prepare([good, *wrong, good], {})
        assert [type(one) for one in made] == [Prepared, *[InvalidInput] * 5, Prepared]


def test_a_model_without_the_head_is_refused(home: Path) -> None:
    with pytest.raises(ValueError, match="BertModel does no tokens; that takes a …ForToken"):
        load(home / "embedding", "tokens")
    with pytest.raises(ValueError, match="takes a model with one label, this one has 3"):
        load(home / "classification", "reranking")


def test_weights_that_transformers_would_make_up_are_named(home: Path, tmp_path: Path) -> None:
    """Where config.json doesn't tell."""
    folder = copied(home / "embedding", tmp_path / "headless", architectures=None)
    with pytest.raises(ValueError, match=r"has no weights for classifier\.bias, classifier\.w"):
        load(folder, "classification")


def test_a_vector_needs_no_pooler(tmp_path: Path) -> None:
    import transformers

    folder = custom_models.save_folder(tmp_path, "embedding")
    config = transformers.AutoConfig.from_pretrained(folder)
    transformers.BertForMaskedLM(config).save_pretrained(folder)
    assert len(outputs(load(folder, "embedding"), ["a cat"])[0]) == 32


def test_weights_must_be_what_was_declared(home: Path) -> None:
    with pytest.raises(Untrusted, match="is not the file that was declared"):
        load(home / "tokens", "tokens", sha256="0" * 64)
    with pytest.raises(Untrusted, match=r"options\.sha256 is missing"):
        load(home / "tokens", "tokens", sha256="")


@pytest.mark.parametrize("name", ["config", "tokenizer"])
def test_the_other_files_must_be_what_was_declared(home: Path, tmp_path: Path, name: str) -> None:
    folder = copied(home / "tokens", tmp_path / "changed")
    declared = custom_models.checksums(folder)
    file = folder / f"{name}.json"
    file.write_text(file.read_text() + " ")
    with pytest.raises(Untrusted, match=rf"{name}\.json is not the file that was declared"):
        load(folder, "tokens", **declared)
    with pytest.raises(Untrusted, match=rf"options\.{name}_sha256 is missing"):
        load(folder, "tokens", **declared | {f"{name}_sha256": ""})
    with pytest.raises(NotConfigured, match=rf"{name}\.json is not the file that was declared"):
        huggingface_folder.tokens("a cat", {}, {"path": str(folder)} | declared)


def test_pickled_weights_are_not_loaded(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = copied(home / "tokens", tmp_path / "pickled")
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(custom_models.Evil()))
    assert outputs(load(folder, "tokens"), ["a cat"])
    (folder / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="but pickled weights, which are not loaded"):
        HuggingFace(task="tokens", path=str(folder), sha256="0" * 64)
    assert not (tmp_path / "pwned").exists()


def test_code_of_a_folder_is_not_run(home: Path, tmp_path: Path) -> None:
    code = {"AutoConfig": "code.Config", "AutoModel": "code.Model"}
    changes = {"model_type": "own-code", "auto_map": code}
    folder = copied(home / "classification", tmp_path / "remote", **changes)
    (folder / "code.py").write_text("import sys\nsys.modules['ran'] = sys\n")
    with pytest.raises(ValueError, match=r"trust_remote_code|own-code"):
        load(folder, "classification")
    assert "ran" not in sys.modules


def test_nothing_is_asked_of_the_network(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("somebody looked outside")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert outputs(load(home / "classification", "classification"), ["a cat"])


def test_padding_changes_no_vector(engines: Engines, home: Path) -> None:
    padded = load(home / "embedding", "embedding", layout="padded")
    wanted = outputs(engines["embedding"], TEXTS)
    np.testing.assert_allclose(outputs(padded, TEXTS), wanted, **TOLERANCE)


ELSEWHERE = "/artifacts/sha256:0/folder"  # of an artifact, whose files workers alone have


def test_launches_are_padded_where_it_is_said_or_the_architecture_needs_it(
    home: Path, tmp_path: Path
) -> None:
    bert, other = home / "embedding", copied(home / "embedding", tmp_path / "other")
    config = json.loads((other / "config.json").read_text()) | {"model_type": "deberta-v2"}
    (other / "config.json").write_text(json.dumps(config))
    declared = custom_models.checksums(bert) | {"config_sha256": ""}
    for folder, layout, padded in (
        (bert, "", False),
        (bert, "packed", False),
        (bert, "padded", True),
        (other, "", True),
        (other, "padded", True),
        (ELSEWHERE, "", True),
        (ELSEWHERE, "packed", False),
    ):
        options = declared | {"path": str(folder), "layout": layout}
        model = Model("own", "1", "huggingface", task="embedding", options=options)
        assert model.pads == padded
        assert bool(model.buckets) == padded
    with pytest.raises(ValueError, match="is a deberta-v2, which takes padded texts alone"):
        load(other, "embedding", layout="packed")


def test_a_text_without_a_token_is_refused(home: Path, tmp_path: Path) -> None:
    folder = copied(home / "embedding", tmp_path / "bare")
    tokenizer = json.loads((folder / "tokenizer.json").read_text()) | {"post_processor": None}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    made = load(folder, "embedding").prepare(["a cat", "", "dog"], {})
    assert [type(one) for one in made] == [Prepared, InvalidInput, Prepared]
    assert "holds no token" in str(made[1])


def test_a_pair_without_a_token_is_refused(home: Path, tmp_path: Path) -> None:
    folder = copied(home / "reranking", tmp_path / "bare")
    tokenizer = json.loads((folder / "tokenizer.json").read_text()) | {"post_processor": None}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    pairs = [{"query": "", "documents": ["dog", text]} for text in ("a cat", "")]
    good, bad = load(folder, "reranking").prepare(pairs, {})
    assert isinstance(good, Prepared)
    assert isinstance(bad, InvalidInput)


def test_half_precision_has_almost_the_same_scores(engines: Engines, home: Path) -> None:
    wanted = outputs(engines["embedding"], TEXTS)
    for dtype in ("float16", "bfloat16"):
        half = load(home / "embedding", "embedding", dtype=dtype)
        assert half.memory_mb() == pytest.approx(engines["embedding"].memory_mb() / 2, rel=0.05)
        np.testing.assert_allclose(outputs(half, TEXTS), wanted, rtol=0, atol=3e-2)


SHORT = {"max_position_embeddings": 64}
ROBERTA = {"max_position_embeddings": 514, "model_type": "roberta", "pad_token_id": 1}


@pytest.mark.parametrize(
    ("config", "tokenizer", "sentence", "longest"),
    [
        (SHORT, {}, {}, 64),
        (SHORT, {"model_max_length": 32}, {}, 32),
        (SHORT, {"model_max_length": 10**30}, {}, 64),
        (SHORT, {}, {"max_seq_length": 48}, 48),
        (ROBERTA, {}, {}, 512),
        ({"max_position_embeddings": 131072}, {}, {}, 8192),
        ({}, {}, {}, 512),
    ],
)
def test_a_folder_says_how_long_texts_may_be(
    tmp_path: Path, config: Any, tokenizer: Any, sentence: Any, longest: int
) -> None:
    files = {"config": config, "tokenizer_config": tokenizer, "sentence_bert_config": sentence}
    for name, content in files.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    assert huggingface_folder.longest({"path": str(tmp_path)}) == longest
    assert huggingface_folder.longest({"path": str(tmp_path), "max_tokens": 20}) == 20


def test_an_api_without_the_folder_says_so_until_it_is_there(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "later"
    for _ in range(2):
        with pytest.raises(NotConfigured, match=r"config\.json is not here"):
            huggingface_folder.tokens("a cat", {}, {"path": str(folder)})
    shutil.copytree(home / "tokens", folder)
    assert huggingface_folder.tokens("a cat", {}, {"path": str(folder)}) == 4


def test_a_roberta_has_the_outputs_of_transformers(home: Path, tmp_path: Path) -> None:
    """Its positions go by the padding, and it knows no types."""
    import transformers

    folder = copied(home / "classification", tmp_path / "roberta")
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    sizes |= {"intermediate_size": 64, "max_position_embeddings": 40, "type_vocab_size": 1}
    ids = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "num_labels": 3}
    sizes["vocab_size"] = len(custom_models.WORDS)
    config = transformers.RobertaConfig(initializer_range=0.2, **sizes, **ids)
    torch.manual_seed(1)
    network = transformers.RobertaForSequenceClassification(config).eval()
    network.save_pretrained(folder)
    engine = load(folder, "classification")
    assert prepared(engine, "word " * 100).size == 39
    for text, labels in zip(TEXTS, outputs(engine, TEXTS), strict=True):
        entry = prepared(engine, text)
        with torch.inference_mode():
            ids = torch.tensor(entry.data[0].ids[None].astype(np.int64))
            wanted = network(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0]
        scores = sorted(wanted.softmax(0).tolist())[::-1]
        assert [one["score"] for one in labels] == pytest.approx(scores, abs=1e-5)


def test_a_query_and_its_documents_are_sized_by_their_characters() -> None:
    size = own_models.pair_characters
    assert size({"query": "abc", "documents": ["de", "f"]}, {}, {}) == 9
    assert size({"query": "abc", "documents": []}, {}, {}) == 1
