"""Code on the pages of other people's tools does what they say: each in the environment of its
tool, as a reader would run it, against a whole platform. It reaches nothing but that."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.supervisor.platform import Platform
from tests.compatibility.environments import ENVIRONMENTS, Environment
from tests.support import tiny_llama
from tests.support.pages import ROOT, Recipe, as_shown, lay_out, recipe, run
from tests.support.platforms import Platforms, spec
from tests.support.wait import PATIENCE_S

PAGES = ROOT / "ops" / "docs" / "how-to" / "compatibility"
QUIET = {
    "HAYSTACK_TELEMETRY_ENABLED": "False",
    "LANGSMITH_TRACING": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
}
NOWHERE = "http://127.0.0.1:9"  # a proxy that isn't there
OFFLINE = {"HTTP_PROXY": NOWHERE, "HTTPS_PROXY": NOWHERE, "NO_PROXY": "127.0.0.1,localhost"}
ADDRESS = "http://localhost:8000"
MODELS = """
[[model]]
name = "minilm"
version = "1"
engine = "minilm"
limits = {{ max_batch = 64, max_tokens = 512 }}

[[model]]
name = "echo"
version = "1"
engine = "echo"

[[model]]
name = "smollm2"
version = "1"
engine = "transformers"
target_ttft_ms = 600000
options = {{ {options}, block_tokens = 16 }}
"""


def _in_its_environment(environment: Environment) -> object:
    why = environment.missing
    return pytest.param(environment, marks=pytest.mark.skipif(bool(why), reason=why))


def page_of(environment: Environment, address: str = ADDRESS) -> Recipe:
    text = (PAGES / f"{environment.name}.md").read_text()
    return recipe(environment.name, text.replace(ADDRESS, address))


@pytest.fixture(scope="module")
def platform(platforms: Platforms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """Its model that generates has random weights: what it writes has the form that was asked for,
    or none."""
    folder = tiny_llama.save(
        tmp_path_factory.mktemp("tiny"), with_tools=True, max_position_embeddings=4096
    )
    options = tiny_llama.options(folder)
    written = ", ".join(f"{name} = {json.dumps(value)}" for name, value in options.items())
    with platforms.running(spec(MODELS.format(options=written))) as running:
        yield running


@pytest.mark.parametrize("name", sorted(ENVIRONMENTS))
def test_a_page_is_run_and_shows_what_comes_of_it(name: str) -> None:
    page = page_of(ENVIRONMENTS[name])
    assert page.commands
    assert page.shown
    assert {kind for kind, _ in page.blocks} <= {"bash", "python", "js", "yaml", "text"}
    unnamed = [text for kind, text in page.blocks if kind in ("python", "js", "yaml")]
    assert len(unnamed) == len(page.files)


@pytest.mark.parametrize(
    "environment", [_in_its_environment(one) for one in ENVIRONMENTS.values()], ids=str
)
def test_a_page_does_what_it_says(
    environment: Environment, platform: Platform, tmp_path: Path
) -> None:
    page = page_of(environment, platform.url)
    lay_out(tmp_path, [page], "", environment.python)
    if environment.is_javascript:
        (tmp_path / "node_modules").symlink_to(environment.folder / "node_modules")
    environ = {
        **QUIET,
        **OFFLINE,
        "HOME": str(tmp_path),
        "MILLRACE_URL": platform.url,
        "PYTHONPATH": str(tmp_path / "lib"),
        "TMPDIR": os.environ.get("TMPDIR", "/tmp"),
    }
    printed = run(page, tmp_path, environ, patience_s=3 * PATIENCE_S)
    assert as_shown(page.shown).fullmatch(printed), printed
