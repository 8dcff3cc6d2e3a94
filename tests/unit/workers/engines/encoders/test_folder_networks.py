"""Architectures of Hugging Face's folders without padding: in every layout, each text has what
plain transformers makes of it alone."""

import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor

from jobs.models.engines import huggingface_folder
from tests.support.cases import each
from tests.unit.workers.engines.encoders.varlen import varlen_attn
from workers.engines.encoders import attention
from workers.engines.encoders.folder_networks import PackedNetwork, PaddedNetwork
from workers.engines.encoders.layouts import CreateLayout, Packed, Padded, Varlen
from workers.engines.encoders.tokenize_pairs import Row

pytestmark = pytest.mark.heavy

LENGTHS = [1, 2, 3, 3, 17, 40, 9, 3]
WORDS, PADDING = 60, 1
SMALL = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "pad_token_id": PADDING,
    "initializer_range": 0.3,
    "num_labels": 3,
}
DISTILBERT = {"dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 64}
MODERNBERT = {"local_attention": 8, "global_attn_every_n_layers": 2}
FAMILIES: Mapping[str, Mapping[str, Any]] = {
    "bert": {},
    "bert, odd heads": {"hidden_size": 36},
    "camembert": {},
    "distilbert": DISTILBERT,
    "electra": {"embedding_size": 16},
    "modernbert": MODERNBERT,
    "modernbert, mean": MODERNBERT | {"classifier_pooling": "mean"},
    "mpnet": {},
    "qwen3": {"num_key_value_heads": 2, "head_dim": 8},
    "roberta": {},
    "xlm-roberta": {},
}
POOLINGS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda x: x.mean(0),
    "cls": lambda x: x[0],
    "last": lambda x: x[-1],
}


@pytest.fixture(params=[Packed, Padded, Varlen])
def layout(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> CreateLayout:
    """Layouts; the kernel of the one for a GPU is replaced by its definition."""
    monkeypatch.setattr(attention, "varlen_attn", varlen_attn)
    create: CreateLayout = request.param
    return create


def network(family: str, head: str) -> tuple[Any, Any]:
    """A network with random weights, the same each time, and its configuration."""
    options = dict(FAMILIES.get(family, {}))
    config = transformers.AutoConfig.for_model(family.split(",")[0], **SMALL | options)
    torch.manual_seed(5)
    return getattr(transformers, f"AutoModel{head}").from_config(config).eval(), config


def rows() -> list[Row]:
    """Rows of random ids, in some of which the padding's id is a word."""
    draw = random.Random(3)
    made = [np.array([draw.randrange(WORDS) for _ in range(n)], np.int32) for n in LENGTHS]
    made[5][7:9] = made[6][-1] = PADDING
    return [Row(ids, np.arange(len(ids), dtype=np.int32) % 2) for ids in made]


def alone(model: Any, row: Row) -> Any:
    """Returns what plain transformers computes for a row by itself."""
    given = {"input_ids": torch.from_numpy(row.ids)[None].long()}
    if getattr(model.config, "type_vocab_size", 0) > 1 and model.config.model_type != "modernbert":
        given["token_type_ids"] = torch.from_numpy(row.types)[None].long()
    return model(**given, attention_mask=torch.ones(1, len(row), dtype=torch.long))


def packed(family: str, head: str, layout: CreateLayout) -> PackedNetwork:
    """The same network without padding."""
    made, config = network(family, head)
    return PackedNetwork(made, config, layout)


same = partial(torch.testing.assert_close, rtol=0, atol=2e-5)


@torch.inference_mode()
def test_a_text_without_padding_has_the_states_that_it_has_alone(layout: CreateLayout) -> None:
    for family, case in each(families(layout)):
        with case:
            wanted = [alone(network(family, "")[0], row).last_hidden_state[0] for row in rows()]
            made = packed(family, "", layout)
            for pooling, of in POOLINGS.items():
                vectors = made.pooled(rows(), pooling, torch.from_numpy)
                same(vectors, torch.stack([of(x) for x in wanted]))


@torch.inference_mode()
def test_a_head_without_padding_says_what_it_says_of_a_text_alone(layout: CreateLayout) -> None:
    for family, case in each(families(layout)):
        with case:
            head = "ForSequenceClassification"
            wanted = [alone(network(family, head)[0], row).logits for row in rows()]
            same(
                packed(family, head, layout).row_logits(rows(), torch.from_numpy), torch.cat(wanted)
            )


@torch.inference_mode()
def test_each_token_without_padding_has_its_labels(layout: CreateLayout) -> None:
    for family, case in each(families(layout)):
        with case:
            head = "ForTokenClassification"
            wanted = [alone(network(family, head)[0], row).logits[0] for row in rows()]
            made = packed(family, head, layout)
            same(made.token_logits(rows(), torch.from_numpy), torch.cat(wanted))


def families(layout: CreateLayout) -> list[str]:
    """Those that this layout is used for: a bias goes padded on a GPU."""
    return [family for family in FAMILIES if not (layout is Varlen and family == "mpnet")]


def test_each_architecture_that_is_known_to_pack_is_tested() -> None:
    assert {family.split(",")[0] for family in FAMILIES} == huggingface_folder.PACKED


@torch.inference_mode()
def test_any_other_architecture_is_padded() -> None:
    embeds, reads, labels = (
        network("deberta-v2", head)[0]
        for head in ("", "ForSequenceClassification", "ForTokenClassification")
    )
    config, send = embeds.config, torch.from_numpy
    states = [alone(embeds, row).last_hidden_state[0] for row in rows()]
    for pooling, of in POOLINGS.items():
        vectors = PaddedNetwork(embeds, config).pooled(rows(), pooling, send)
        same(vectors, torch.stack([of(x) for x in states]))
    logits = [alone(reads, row).logits for row in rows()]
    same(PaddedNetwork(reads, config).row_logits(rows(), send), torch.cat(logits))
    logits = [alone(labels, row).logits[0] for row in rows()]
    same(PaddedNetwork(labels, config).token_logits(rows(), send), torch.cat(logits))
