"""The quick tier: a test that imports torch or starts a process must be marked heavy, or fails."""

import sys
from collections.abc import Generator
from multiprocessing import util
from typing import Any

import pytest
from hypothesis import settings as hypothesis_settings

from tests.unit.kept_spans import kept as kept

_LIBRARIES = {"torch", "transformers"}
_STARTS = {"os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "subprocess.Popen"}


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The loop of tests that are marked anyio."""
    return "asyncio"


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--tier") == "quick":
        config.pluginmanager.register(_QuickTier())
        every = hypothesis_settings.get_profile("millrace")
        hypothesis_settings.register_profile("quick", every, max_examples=20)
        hypothesis_settings.load_profile("quick")


class _QuickTier:
    def __init__(self) -> None:
        self._watches = False
        self._found: list[str] = []
        sys.addaudithook(self._audit)
        spawn = util.spawnv_passfds  # of which Python tells no audit hook

        def spawnv_passfds(path: str, *args: Any) -> int:
            self._audit("os.posix_spawn", (path,))
            return spawn(path, *args)

        util.spawnv_passfds = spawnv_passfds

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self) -> Generator[None, Any, Any]:
        self._watches = True
        try:
            return (yield)
        finally:
            self._watches = False
            self._found.clear()  # the report has the error

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self) -> Generator[None, Any, Any]:
        self._watches = True
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self) -> Generator[None, Any, Any]:
        try:
            return (yield)
        finally:
            self._watches = False
            if self._found:  # also where the code under test caught what `_audit` raised
                found, self._found = self._found, []
                pytest.fail(f"must be marked heavy: {', '.join(found)}", pytrace=False)

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if not self._watches:
            return
        if event == "import":
            # One that a test hides is there, as None.
            if args[0] not in _LIBRARIES or args[0] in sys.modules:
                return
        elif event not in _STARTS:
            return
        self._found.append(f"{event} {args[0] if args else ''}")
        raise AssertionError(f"must be marked heavy: {self._found[-1]}")
