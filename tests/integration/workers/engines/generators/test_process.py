"""Engine `transformers`: what ends its process costs the process alone."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.workers.engines.generators.conftest import load_tiny
from tests.support.generation import tiny_llama
from tests.support.generation.generating import new_sequence, prepared, resumed, run
from tests.support.wait import eventually
from workers.engines.generator import GeneratorDied
from workers.engines.transformers.engine import TransformersGenerator


@pytest.fixture
def own(tiny_folder: Path) -> Iterator[TransformersGenerator]:
    """Generator that the test may kill."""
    generator = load_tiny(tiny_folder)
    yield generator
    generator.close()


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_killed_process_is_started_again_and_sequences_go_on(
    own: TransformersGenerator,
) -> None:
    one = new_sequence(prepared(own, {"prompt": "the cat"}), seed=3)
    [whole] = run(own, [one])
    own.add(resumed(one, []))
    begun = [token for _ in range(3) for e in own.step(64).emitted for token in e.tokens]
    os.kill(own.pid, signal.SIGKILL)
    with pytest.raises(GeneratorDied, match="-9"):
        own.step(64)
    own.restart()
    [rest] = run(own, [resumed(one, begun)])
    assert begun + rest.tokens == whole.tokens


def test_a_process_that_does_not_answer_is_killed(tiny_folder: Path) -> None:
    own = load_tiny(tiny_folder, max_step_s=0.2)
    try:
        os.kill(own.pid, signal.SIGSTOP)
        one = new_sequence(prepared(own, "a"))
        own.add(one)
        with pytest.raises(GeneratorDied, match=r"0\.2 s"):
            own.step(64)
        assert is_gone(own.pid)
    finally:
        own.close()


def test_an_exception_in_the_process_is_its_end(own: TransformersGenerator) -> None:
    own.add(new_sequence(prepared(own, "a")))
    with pytest.raises(GeneratorDied, match="TypeError"):
        own.step("many")  # type: ignore[arg-type]
    assert is_gone(own.pid)


def test_a_process_ends_with_its_parent(tiny_folder: Path) -> None:
    code = (
        "import sys; from workers.engines.transformers.engine import TransformersGenerator;"
        f"g = TransformersGenerator(**{tiny_llama.options(tiny_folder)!r});"
        "print(g.pid, flush=True); sys.stdin.read()"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[5],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout
    child = int(parent.stdout.readline())
    assert not is_gone(child)
    parent.kill()
    parent.communicate()
    eventually(lambda: is_gone(child))


def test_the_parent_loads_no_torch(tiny_folder: Path) -> None:
    code = (
        "import sys; from workers.engines.transformers.engine import TransformersGenerator;"
        f"g = TransformersGenerator(**{tiny_llama.options(tiny_folder)!r});"
        "g.prepare([{'prompt': 'a'}]); g.close();"
        "assert not {'torch', 'transformers', 'numpy'} & set(sys.modules)"
    )
    root = Path(__file__).parents[5]
    subprocess.run([sys.executable, "-c", code], cwd=root, check=True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"blocks": 1}, "too few"),
        ({"dtype": "float33"}, "float33"),
        ({"device": "nowhere"}, "nowhere"),
    ],
)
def test_a_load_that_fails_says_why(
    tiny_folder: Path, options: dict[str, object], said: str
) -> None:
    with pytest.raises((ValueError, RuntimeError), match=said):
        load_tiny(tiny_folder, **options)
