"""Code on the pages of other people's tools does what they say: each in the environment of its
tool, as a reader would run it, against a whole platform. It reaches nothing but that."""

import os
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from ops.supervisor.platform import Platform
from tests.compatibility.environments import ENVIRONMENTS, HERE
from tests.support.generation import tiny_llama
from tests.support.models.entries import model
from tests.support.pages import CLIENT, MINILM, ROOT, Recipe, as_shown, lay_out, recipe, run
from tests.support.platforms import Platforms, spec
from tests.support.wait import PATIENCE_S

FOLDER = ROOT / "ops" / "docs" / "how-to" / "compatibility"
PAGES = {path.stem: path for path in FOLDER.rglob("*.md")}
NOT_RUN = {
    "index": "a table",
    "lm-eval": "needs a tokenizer of the hub; `test_lm_eval.py` runs its tool",
    "open-webui": "settings of a server, whose requests are tested",
}
SHARED = {  #: pages whose environment has another name
    "dbt": "tables",
    "dspy": "agents",
    "instructor": "agents",
    "openai-agents": "agents",
    "pydantic-ai": "agents",
}
SCHEDULED = ["airflow", "dagster", "dbt", "prefect"]  #: tools that try steps again
CALLED = sorted((ENVIRONMENTS.keys() | SHARED) - {"agents", *SCHEDULED, *NOT_RUN})
TORCH = ["guidellm"]  #: tools that get the torch of the product's environment
KINDS = {"bash", "python", "js", "sql", "yaml", "text"}

NOWHERE = "http://127.0.0.1:9"  # a proxy that isn't there
ENVIRON = {
    "HTTP_PROXY": NOWHERE,
    "HTTPS_PROXY": NOWHERE,
    "NO_PROXY": "127.0.0.1,localhost",
    "DAGSTER_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
    "HAYSTACK_TELEMETRY_ENABLED": "False",
    "LANGSMITH_TRACING": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "TELEMETRY_ENABLED": "false",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "300",
}
ADDRESS = "http://localhost:8000"
TOKENIZER = "HuggingFaceTB/SmolLM2-135M-Instruct"


def _where_installed(names: list[str]) -> list[object]:
    reasons = {name: ENVIRONMENTS[SHARED.get(name, name)].missing for name in names}
    return [
        pytest.param(name, marks=pytest.mark.skipif(bool(why), reason=why))
        for name, why in reasons.items()
    ]


def page(name: str, address: str = ADDRESS, tokenizer: str = TOKENIZER) -> Recipe:
    text = PAGES[name].read_text().replace(ADDRESS, address)
    return recipe(name, text.replace(TOKENIZER, tokenizer))


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama.save(
        tmp_path_factory.mktemp("tiny"), with_tools=True, max_position_embeddings=4096
    )


@pytest.fixture(scope="module")
def platform(platforms: Platforms, weights: Path) -> Iterator[Platform]:
    """Its model that generates has random weights: what it writes has the form that was asked for,
    or none. Beside it is one that calls tools."""
    options = {**tiny_llama.options(weights), "block_tokens": 16, "target_ttft_ms": 600_000}
    served = (
        MINILM
        + model("smollm2", "transformers", **options)
        + model("qwen3", "python", task="chat", file=str(HERE / "assistant.py"))
    )
    with platforms.running(spec(served)) as running:
        yield running


def run_page(
    name: str, platform: Platform, weights: Path, folder: Path, *paths: Path, **environ: str
) -> None:
    """Runs a page in its environment, and compares what it prints."""
    environment = ENVIRONMENTS[SHARED.get(name, name)]
    text = page(name, platform.url, str(weights))
    lay_out(folder, [text], "", environment.python)
    if environment.is_javascript:
        (folder / "node_modules").symlink_to(environment.folder / "node_modules")
    commands = [folder / ".venv" / "bin", environment.folder / "bin", os.environ["PATH"]]
    given = {
        "AIRFLOW_HOME": str(folder),
        "APPENDED_PACKAGES": sysconfig.get_paths()["purelib"],
        "HOME": str(folder),
        "MILLRACE_URL": platform.url,
        "PATH": os.pathsep.join(map(str, commands)),
        "PYTHONPATH": os.pathsep.join(map(str, [CLIENT, *paths])),
    }
    for found in environment.encodings:
        given["TIKTOKEN_CACHE_DIR"] = str(found)
    printed = run(text, folder, ENVIRON | given | environ, patience_s=3 * PATIENCE_S)
    assert as_shown(text.shown).fullmatch(printed), printed


def test_every_page_is_run_but_those_that_say_why() -> None:
    assert PAGES.keys() == {*CALLED, *SCHEDULED, *NOT_RUN}


def test_each_row_of_the_table_names_its_command() -> None:
    rows = [line for line in PAGES["index"].read_text().splitlines() if line.startswith("| [")]
    linked: list[str] = []
    for row in rows:
        names = [Path(link).stem for link in re.findall(r"\((\S+\.md)\)", row)]
        chosen = names[0] if len(names) == 1 else '"' + " or ".join(names) + '"'
        own = f"tests/compatibility/test_{names[0].replace('-', '_')}.py"
        given = own if names[0] in NOT_RUN else f"tests/compatibility -k {chosen}"
        assert row.endswith(f" `pytest {given}` |")
        assert names[0] not in NOT_RUN or (ROOT / own).exists()
        linked += names
    assert {*linked} == PAGES.keys() - {"index"}


@pytest.mark.parametrize("name", [*CALLED, *SCHEDULED])
def test_a_page_shows_what_comes_of_its_files(name: str) -> None:
    text = page(name)
    assert text.commands
    assert text.shown
    assert {kind for kind, _ in text.blocks} <= KINDS
    unnamed = [kind for kind, _ in text.blocks if kind not in ("bash", "text")]
    assert len(unnamed) == len(text.files)


@pytest.mark.parametrize("name", _where_installed(CALLED))
def test_a_page_does_what_it_says(
    name: str, platform: Platform, weights: Path, tmp_path: Path
) -> None:
    run_page(name, platform, weights, tmp_path, *([HERE / "appended"] if name in TORCH else []))


@pytest.mark.parametrize("name", _where_installed(SCHEDULED))
def test_a_step_that_is_tried_again_gets_the_job_that_it_submitted(
    name: str, platform: Platform, weights: Path, tmp_path: Path
) -> None:
    interrupted = tmp_path / "interrupted"
    before = jobs_of(platform)
    once = {"INTERRUPTED_ONCE": str(interrupted)}
    run_page(name, platform, weights, tmp_path, HERE / "interrupted", **once)
    assert interrupted.exists()
    [job] = [job for job in jobs_of(platform) if job not in before]
    assert httpx.get(f"{platform.url}/jobs/{job}").json()["counts"]["succeeded"] == 3


def jobs_of(platform: Platform) -> list[str]:
    return [job["id"] for job in httpx.get(f"{platform.url}/jobs").json()["data"]]
