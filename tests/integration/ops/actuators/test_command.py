"""The program of `command`: told again after a while, and what it may do wrong."""

import re
from pathlib import Path

import pytest

from jobs import clock
from tests.integration.ops.actuators.rigs import program
from workers.keeper.scaling.actuators import command
from workers.keeper.scaling.actuators.command import CommandActuator
from workers.keeper.scaling.actuators.protocol import ActuatorError


def test_the_same_number_is_told_again_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tmp_path / "told"
    actuator = CommandActuator(program(tmp_path, f'echo "$*" >> {told}'))
    now_s = clock.monotonic()
    for after_s in (0.0, 1.0, command.AGAIN_S + 1):
        monkeypatch.setattr(clock, "monotonic", lambda at_s=now_s + after_s: at_s)
        actuator.apply("a", 3)
    assert told.read_text() == "a 3\na 3\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("echo no quota left >&2; exit 3", "scale a 3 ended with 3: no quota left"),
        ("sleep 9", "did not end within 0.1 s"),
        (None, "can't be run: No such file or directory"),
        ("", "set MILLRACE_SCALE_COMMAND"),
    ],
)
def test_a_program_that_fails_says_why(tmp_path: Path, text: str | None, why: str) -> None:
    path = program(tmp_path, text) if text else "" if text == "" else str(tmp_path / "none")
    within_s = 0.1 if text == "sleep 9" else 30.0
    with pytest.raises(ActuatorError, match=re.escape(why)):
        CommandActuator(path, within_s).apply("a", 3)
