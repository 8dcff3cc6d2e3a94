"""The minilm engine: the published vector, and vectors that depend on their own text alone; the
encoder of any size, with random weights."""

import json
import random
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tokenizers import Tokenizer

from jobs.models.inputs.input_size import WORDS, minilm_folder
from tests.support.cases import each
from workers.engines.common import device
from workers.engines.encoder import RandomEncoder
from workers.engines.encoders import embedding
from workers.engines.encoders.bert import Encoder
from workers.engines.encoders.tokenize import Texts
from workers.engines.minilm import MiniLM
from workers.engines.protocol import DeviceFailed, InvalidInput, Prepared

pytestmark = pytest.mark.heavy

GOLDEN = Path(__file__).parents[5] / "shared" / "data" / "minilm_golden_triton.json"
TOLERANCE = {"rtol": 0, "atol": 1e-5}


@pytest.fixture(scope="module", params=["packed", "padded"])
def engine(request: pytest.FixtureRequest) -> MiniLM:
    return MiniLM(device="cpu", layout=request.param)


@pytest.fixture(scope="module")
def golden() -> Mapping[str, Any]:
    if not GOLDEN.exists():
        pytest.skip(f"the golden vector is not here: {GOLDEN}")
    content: Mapping[str, Any] = json.loads(GOLDEN.read_text())
    return content


def prepared(engine: MiniLM, *inputs: Any, **params: Any) -> list[Prepared]:
    answers = engine.prepare(inputs, params)
    assert all(isinstance(answer, Prepared) for answer in answers)
    return answers


def embed(engine: MiniLM, *texts: str, **params: Any) -> NDArray[np.float32]:
    return engine.run([entry.data for entry in prepared(engine, *texts)], params)


def test_golden_text_has_the_published_tokens_and_vector(
    engine: MiniLM, golden: Mapping[str, Any]
) -> None:
    [entry] = prepared(engine, golden["input"])
    assert entry.data.tolist() == golden["input_token_ids"]
    assert entry.size == golden["prompt_tokens"]
    [vector] = embed(engine, golden["input"])
    np.testing.assert_allclose(vector, golden["embedding"], rtol=0, atol=golden["atol"])


def mixed_batch() -> list[NDArray[np.int32]]:
    one_to_256_tokens = [1, 2, 3, 3, 15, 16, 17, 40, 100, 255, 256]
    draw = random.Random(7)
    batch = [
        np.array([draw.randrange(1000, 30000) for _ in range(length)], dtype=np.int32)
        for length in one_to_256_tokens
    ]
    draw.shuffle(batch)
    return batch


def test_vector_does_not_depend_on_batch_mates(engine: MiniLM) -> None:
    batch = mixed_batch()
    alone = np.concatenate([engine.run([ids], {}) for ids in batch])
    np.testing.assert_allclose(engine.run(batch, {}), alone, **TOLERANCE)


def test_both_layouts_have_the_same_vectors() -> None:
    packed, padded = (
        MiniLM(device="cpu", layout=layout).run(mixed_batch(), {})
        for layout in ("packed", "padded")
    )
    np.testing.assert_allclose(packed, padded, **TOLERANCE)


@pytest.mark.nightly
def test_half_precision_has_almost_the_same_vectors(engine: MiniLM) -> None:
    half = MiniLM(device="cpu", layout="padded", dtype="float16")
    vectors = half.run(mixed_batch(), {})
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, engine.run(mixed_batch(), {}), rtol=0, atol=2e-3)
    assert half.memory_mb() == pytest.approx(engine.memory_mb() / 2, rel=1e-3)


@pytest.mark.parametrize(
    ("truncate", "tokens"), [(0, 256), (3, 3), (4, 4), (7, 7), (100, 100), (256, 256), (512, 256)]
)
def test_texts_and_token_ids_are_cut_with_the_specials_kept(
    engine: MiniLM, truncate: int, tokens: int
) -> None:
    params = {"truncate": truncate} if truncate else {}
    for entry in prepared(engine, "word " * 1000, [2304] * 1000, **params):
        assert entry.size == len(entry.data) == tokens
        assert entry.truncated == 1002 - tokens
        assert (entry.data[0], entry.data[-1]) == (101, 102)


def test_a_text_that_is_too_long_fails_alone_where_its_entry_says_so() -> None:
    texts = Texts(16, "fail")
    long, ids = "word " * 15, [2304] * 15
    made = texts.prepare(["a cat", long, ids, "word " * 14, None], {})
    assert [isinstance(one, InvalidInput) for one in made] == [False, True, True, False, True]
    assert all(
        "length is 16 tokens. However, you requested 17 tokens" in str(made[n]) for n in (1, 2)
    )
    cut = texts.prepare([long, ids], {"truncate": 512})
    assert [one.truncated for one in cut if isinstance(one, Prepared)] == [1, 1]
    with pytest.raises(ValueError, match='on_too_long must be "fail" or "truncate"'):
        Texts(16, "cut")  # type: ignore[arg-type]


def test_what_is_cut_or_shorter_than_the_cut_changes_nothing(engine: MiniLM) -> None:
    kept = "word " * 254
    cut, whole = embed(engine, kept + "entirely different", kept)
    np.testing.assert_allclose(cut, whole, **TOLERANCE)
    [short] = prepared(engine, "a black cat", truncate=512)
    assert short.size == 5


CAT_IDS = [1037, 2304, 4937]  # "a black cat"


@pytest.mark.parametrize("ids", [CAT_IDS, [101, *CAT_IDS, 102]])
def test_token_ids_stand_for_their_text_with_or_without_the_specials(
    engine: MiniLM, ids: list[int]
) -> None:
    text, of_ids, last = prepared(engine, "a black cat", ids, "cat")
    assert of_ids.data.dtype == np.int32
    assert of_ids.data.tolist() == text.data.tolist()
    assert (of_ids.size, last.size) == (5, 3)


def test_token_ids_or_dimensions_out_of_range_never_reach_the_device(engine: MiniLM) -> None:
    made = engine.prepare([[30522], [-1], [1, "a"]], {})
    [refused] = engine.prepare(["a black cat"], {"dimensions": 385})
    assert [type(one) for one in (*made, refused)] == [InvalidInput] * 4
    assert "the model has 384" in str(refused)


def test_vectors_are_cut_before_they_are_normalized(engine: MiniLM) -> None:
    whole = embed(engine, "a black cat", "cat", normalize=False)
    raw = embed(engine, "a black cat", "cat", normalize=False, dimensions=7)
    np.testing.assert_allclose(raw, whole[:, :7], atol=1e-5)
    cut = embed(engine, "a black cat", "cat", dimensions=7)
    norms = np.linalg.norm(raw, axis=1, keepdims=True)
    np.testing.assert_allclose(cut, raw / norms, atol=1e-5)


@pytest.mark.parametrize("refused", [None, 7, ["cat"], {"text": "cat"}, b"cat", "\ud800"])
def test_non_text_is_refused_in_its_place(engine: MiniLM, refused: Any) -> None:
    made = engine.prepare(["cat", refused, "a black cat"], {})
    assert [type(one) for one in made] == [Prepared, InvalidInput, Prepared]
    assert [one.size for one in made[::2]] == [3, 5], "the specials count"


def test_answers_keep_their_order_over_the_pieces_of_tokenizing(engine: MiniLM) -> None:
    texts = ["word " * (i % 50) for i in range(150)]
    assert [entry.size for entry in prepared(engine, *texts)] == [i % 50 + 2 for i in range(150)]


def test_vectors_have_unit_length_unless_told_otherwise(engine: MiniLM) -> None:
    [unit] = embed(engine, "a black cat")
    [raw] = embed(engine, "a black cat", normalize=False)
    assert unit.dtype == np.float32
    assert unit.shape == (384,)
    assert np.linalg.norm(unit) == pytest.approx(1, abs=1e-6)
    assert np.linalg.norm(raw) != pytest.approx(1, abs=0.1)
    np.testing.assert_allclose(raw / np.linalg.norm(raw), unit, atol=1e-5)
    [vector] = embed(engine, "")
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-6)


def test_samples_are_texts_of_all_lengths_it_can_run(engine: MiniLM) -> None:
    samples = engine.samples()
    assert len(embed(engine, *samples)) == len(samples)
    assert [entry.size for entry in prepared(engine, *samples)] == [3, 16, 32, 64, 128, 256]
    cut = MiniLM(device="cpu", max_tokens=100)
    sizes = [entry.size for entry in prepared(cut, *cut.samples())]
    assert sizes == [3, 16, 32, 64, 100]


def test_a_closed_engine_holds_no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    made: weakref.WeakSet[Encoder] = weakref.WeakSet()

    def encoder(*args: Any) -> Encoder:
        made.add(new := Encoder(*args))
        return new

    monkeypatch.setattr(embedding, "Encoder", encoder)
    engine = MiniLM(device="cpu")
    assert len(made) == 1
    assert engine.memory_mb() == pytest.approx(86, abs=1)  # 22.6 million parameters of 4 bytes
    engine.close()
    assert not made


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"layout": "ragged"}, r"options\.layout is .*; there are: "),
        ({"dtype": "int3"}, r"options\.dtype is .*; there are: "),
        ({"max_tokens": 513}, "max_tokens"),  # beyond the position embeddings
    ],
)
def test_an_option_that_cant_be_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        MiniLM(device="cpu", **options)


def test_a_device_that_computes_something_else_fails_the_probe(
    engine: MiniLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.probe()
    run = engine.run
    monkeypatch.setattr(engine, "run", lambda batch, params: run(batch, params) * 0.9)
    with pytest.raises(DeviceFailed, match="vector of a known text"):
        engine.probe()


TINY = {"hidden": 32, "layers": 2, "heads": 4, "intermediate": 64, "threads": 1}


def of_random(text: str, **options: Any) -> Any:
    engine = RandomEncoder(device="cpu", **{**TINY, **options})
    [entry] = engine.prepare([text], {})
    return engine.run([entry.data], {})[0]


def test_a_seed_gives_the_same_model_and_another_a_different_one() -> None:
    assert np.array_equal(of_random("a cat"), of_random("a cat"))
    assert not np.allclose(of_random("a cat"), of_random("a cat", seed=1), atol=1e-2)


def test_its_vectors_are_as_long_as_it_is_wide_and_its_memory_grows_with_its_shape() -> None:
    assert of_random("a cat", hidden=48).shape == (48,)
    small = RandomEncoder(device="cpu", **TINY).memory_mb()
    for changed, case in each(["hidden", "layers", "intermediate"]):
        with case:
            larger = RandomEncoder(device="cpu", **{**TINY, changed: 2 * TINY[changed]})
            assert larger.memory_mb() > small


def test_the_tokenizer_has_as_many_words_as_it_takes() -> None:
    tokenizer = Tokenizer.from_file(str(minilm_folder() / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == WORDS


@pytest.mark.parametrize(
    ("options", "named"),
    [({"hidden": 30}, "hidden"), ({"vocabulary": 100}, "vocabulary"), ({"max_tokens": 2}, "max_")],
)
def test_a_shape_that_cant_be_is_refused(options: dict[str, int], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        RandomEncoder(device="cpu", **{**TINY, **options})


def test_a_closed_one_gives_its_memory_back() -> None:
    def resident_mb() -> float:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20

    device.choose("cpu").release()  # what other tests left would be used first
    before = resident_mb()
    engine = RandomEncoder(device="cpu", hidden=256, layers=6, heads=4, intermediate=4096)
    held = resident_mb() - before
    assert held > 0.8 * engine.memory_mb()
    engine.close()
    assert resident_mb() - before < 0.2 * held
