"""Order, tiers and time limits of all tests; `tests.support.fixtures` has the servers."""

import gc
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from tests.support import fork_servers, http_client, tiers
from tests.support.cores import usable_cores
from tests.support.pace import pace

# No test fetches a model, nor uses one that this user has fetched.
os.environ["PIP_NO_INDEX"] = "1"
os.environ["XDG_DATA_HOME"] = str(Path(tempfile.gettempdir()) / "millrace-tests-data")

_TIMEOUT_S = 400
_STARTED: Counter[str] = Counter()  # platforms, by all processes of the run
#: What takes long begins first, the shared platforms before all: each is one long queue of files.
_FIRST = ("tests/acceptance/", "tests/browser/", "tests/integration/")

http_client.configure()
hypothesis_settings.register_profile(
    "millrace", deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
hypothesis_settings.load_profile("millrace")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--tier",
        choices=tiers.LEFT_OUT,
        default="nightly",
        help="quick, test or nightly: tests marked for a larger tier are left out",
    )
    parser.addoption(
        "--after", choices=["quick"], default="", help="a tier that has been run: leave it out"
    )


def pytest_configure(config: pytest.Config) -> None:
    pace()  # before the processes of xdist start, which inherit it
    fork_servers.share()
    if config.getoption("--tier") != "quick":  # which needs no servers, nor the imports for them
        config.pluginmanager.import_plugin("tests.support.fixtures")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return _selection(config).leaves_out(collection_path) or None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Five processes on two cores, since most tests wait for most of their time; more of them on
    few cores would have no time for the platforms that they start."""
    return max(2, round(2.5 * usable_cores()))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Takes the place of `--dist loadgroup`, which has no effect in pytest 9.2: xdist 3.8 names the
    group in an attribute that is no longer read."""
    from tests.support.scheduling import ByPlatform

    config.option.loadscopereorder = False
    return ByPlatform(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collects tests without looking for garbage among their modules, and leaves these out of all
    later searches: a million objects, which stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)  # after pytest-randomly, whose order of files and tests is kept
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Puts together what shares a platform, longest first, and gives a slow machine more time."""
    if out := _selection(config).deselect(items):
        config.hook.pytest_deselected(items=out)
    first: dict[str, int] = {}
    for item in items:
        mark = item.get_closest_marker("timeout")
        limit_s = mark.args[0] if mark else _TIMEOUT_S
        item.add_marker(pytest.mark.timeout(limit_s * pace()), append=False)
        first.setdefault(_group(item), len(first))
    items.sort(key=lambda item: (_rank(item), first[_group(item)]))


def pytest_sessionfinish(session: pytest.Session) -> None:
    platforms = sys.modules.get("tests.support.platforms")
    started = dict(platforms.STARTED) if platforms else {}
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["platforms"] = started
    else:
        _STARTED.update(started)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    _STARTED.update(getattr(node, "workeroutput", {}).get("platforms", {}))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Says what repeats the run; a header is not shown by `-q`."""
    seed = getattr(config.option, "randomly_seed", None)
    terminalreporter.write_line(f"order: --randomly-seed={seed}; pace of the machine: {pace():g}")
    if _STARTED:
        found = ", ".join(f"{count} {kind}" for kind, count in sorted(_STARTED.items()))
        terminalreporter.write_line(f"platforms started: {found}")


def _selection(config: pytest.Config) -> tiers.Selection:
    return tiers.Selection(config.getoption("--tier"), config.getoption("--after"))


def _group(item: pytest.Item) -> str:
    return tiers.group_of(item.nodeid.partition("::")[0])


def _rank(item: pytest.Item) -> int:
    if _group(item).isupper():
        return -1
    starts = (n for n, path in enumerate(_FIRST) if item.nodeid.startswith(path))
    return next(starts, len(_FIRST))
