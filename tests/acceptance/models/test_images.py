"""Images on a whole platform: calls, jobs, raw files by the Open Inference Protocol, refusals."""

import json

import httpx
import numpy as np
import pytest
from tritonclient.http import InferenceServerClient, InferInput

from millrace import Client
from ops.supervisor.platform import Platform
from tests.support.cases import each
from tests.support.clients import infer
from tests.support.models import images
from tests.support.models.entries import model
from tests.support.platforms import OPEN

OPTIONS = {"module": "workers.engines.classifier", "build": "RandomClassifier"}
LIMITS = {"max_batch": 8, "in_flight": 2, "max_item_bytes": 1_400_000}
MODELS = model("photos", "image_classifier", **OPTIONS, limits=LIMITS)
PLATFORM = OPEN
TRUNCATED = images.hostile()["truncated jpeg"][0]


def file_of(width: int, height: int) -> bytes:
    return images.saved(images.picture(width, height))


def test_a_call_has_labels_and_counts_pixels(http: httpx.Client) -> None:
    answer = infer(http, "photos", images.encoded(file_of(80, 60)), params={"top_k": 3})
    assert answer.status_code == 200, answer.text
    output = answer.json()["output"]
    assert [sorted(pair) for pair in output] == [["label", "score"]] * 3
    assert output[0]["score"] >= output[1]["score"] >= output[2]["score"]
    assert answer.json()["usage"] == {"pixels": 256 * 192}


def test_a_call_with_a_hostile_file_is_refused(http: httpx.Client) -> None:
    """All but the truncated one before a worker gets it."""
    names = ["gif", "png bomb", "jpeg bomb", "animated png", "profile bomb", "truncated jpeg"]
    for name, case in each(names):
        with case:
            data, said = images.hostile()[name]
            answer = infer(http, "photos", images.encoded(data))
            assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
            assert said in answer.json()["detail"]


def test_a_job_with_a_bomb_is_refused_as_a_whole_and_names_it(http: httpx.Client) -> None:
    items = [images.encoded(data) for data in (file_of(80, 60), images.bomb(), file_of(60, 80))]
    answer = http.post("/jobs", json={"model": "photos", "items": items})
    assert answer.status_code == 422
    [fault] = answer.json()["errors"]
    assert fault["loc"][:2] == ["items", 1]
    assert "pixels at most" in fault["message"]


def test_no_launch_of_a_job_mixes_shapes_and_a_broken_file_fails_alone(
    http: httpx.Client, client: Client
) -> None:
    files = list(map(images.numbered, range(60)))
    files[17] = TRUNCATED
    job = client.jobs.submit("photos", map(images.encoded, files))
    counts = client.jobs.wait(job["id"])["counts"]
    assert (counts["succeeded"], counts["failed"]) == (59, 1)
    results = list(client.jobs.results(job["id"]))
    assert "can't decode this JPEG" in results[17]["error"]["message"]
    launches: dict[str, set[int]] = {}
    for seq, result in enumerate(results):
        if result["outcome"] != "succeeded":
            continue
        found = http.get(f"/jobs/{job['id']}/items/{seq}").json()
        launch, size = found["launch"], found["usage"]["pixels"]
        launches.setdefault(launch["id"], set()).add(size)
        assert launch["bucket"] == size
        assert launch["units"] == launch["padded_units"] == launch["items"] * size
    assert all(len(sizes) == 1 for sizes in launches.values())
    assert len(launches) < counts["succeeded"], "some share launches, as the machine allows"


@pytest.mark.parametrize("binary", [True, False])
def test_files_come_as_they_are_or_in_base64_by_the_open_inference_protocol(
    platform: Platform, http: httpx.Client, binary: bool
) -> None:
    files = [file_of(*size) for size in images.SIZES]
    array = np.empty(len(files), object)
    array[:] = files if binary else [images.encoded(one).encode() for one in files]
    given = InferInput("image", [len(files)], "BYTES")
    given.set_data_from_numpy(array, binary_data=binary)
    triton = InferenceServerClient(platform.url.removeprefix("http://"))
    answered = triton.infer("photos", [given]).as_numpy("output")
    called = [infer(http, "photos", images.encoded(one)).json()["output"] for one in files]
    for one, other in zip(map(json.loads, answered), called, strict=True):
        assert [pair["label"] for pair in one] == [pair["label"] for pair in other]
    triton.close()
