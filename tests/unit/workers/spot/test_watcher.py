"""Notices of reclaims: of the three providers, as a file, as a signal."""

from collections.abc import Iterator
from contextlib import closing
from math import inf
from pathlib import Path
from typing import Any

import pytest

from jobs.settings import Settings
from tests.support.servers.metadata_service import MetadataService, metadata_service
from tests.support.wait import PATIENCE_S, eventually
from workers.spot import providers
from workers.spot.providers import PROVIDERS, Ask, MetadataError
from workers.spot.watcher import Notice, Service, Watcher

NOTICE_S = 7200.0
LEFT_S, FOR_LATENESS_S = 3600.0, 600.0  # of the machine's time, and of the test's


@pytest.fixture
def service() -> Iterator[MetadataService]:
    with metadata_service() as running:
        yield running


@pytest.fixture
def ask(service: MetadataService) -> Iterator[Ask]:
    with closing(Service(service.url)) as client:
        yield client.ask


def watching(**settings: object) -> tuple[Watcher, list[Notice]]:
    notices: list[Notice] = []
    spot = Settings(spot_notice_s=NOTICE_S, **settings)  # type: ignore[arg-type]
    return Watcher(spot, notices.append), notices


def about(left_s: float) -> Any:
    return pytest.approx(left_s, abs=FOR_LATENESS_S)


@pytest.mark.parametrize("name", PROVIDERS)
def test_a_provider_gives_no_notice_until_the_machine_is_reclaimed(
    name: str, service: MetadataService, ask: Ask
) -> None:
    provider, answer = PROVIDERS[name](), service.answer
    assert provider.look(ask) is None
    service.answer = lambda *_: (500, b"<html>")
    with pytest.raises(MetadataError):
        PROVIDERS[name]().look(ask)
    service.answer = answer
    service.reclaim(LEFT_S)
    assert provider.look(ask) == (inf if name == "gcp" else about(LEFT_S))


def test_aws_is_asked_for_one_token_and_for_another_where_it_has_run_out(
    service: MetadataService, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = PROVIDERS["aws"]()
    provider.look(ask)
    provider.look(ask)
    assert service.asked.count("/latest/api/token") == 1
    monkeypatch.setattr("tests.support.servers.metadata_service.TOKEN", "another")
    assert provider.look(ask) is None  # refused
    service.reclaim(LEFT_S)
    assert provider.look(ask) == about(LEFT_S)
    assert service.asked.count("/latest/api/token") == 2


def test_gcp_is_told_at_once_and_not_asked_again_and_again(
    service: MetadataService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(providers, "_GCP_WAITS_S", int(PATIENCE_S))
    monkeypatch.setattr("workers.spot.watcher._TIMEOUT_S", 2 * PATIENCE_S)
    watcher, notices = watching(spot_provider="gcp", spot_metadata_url=service.url)
    watcher.start()
    eventually(lambda: any("wait_for_change" in path for path in service.asked))
    asked = len(service.asked)
    assert not notices
    service.reclaim(30.0)
    eventually(lambda: notices)
    assert notices == [Notice("gcp", NOTICE_S)]
    assert len(service.asked) == asked


def test_an_event_of_another_azure_machine_is_none_of_ours(
    service: MetadataService, ask: Ask
) -> None:
    service.machine = "vm-8"
    service.reclaim(30.0)
    assert PROVIDERS["azure"]().look(ask) is None


def test_a_watcher_goes_on_where_the_service_fails(
    service: MetadataService, caplog: pytest.LogCaptureFixture
) -> None:
    right, asked = service.answer, list[str]()

    def fails(method: str, path: str, headers: object) -> tuple[int, bytes]:
        asked.append(path)
        return (503, b"") if len(asked) < 3 else right(method, path, headers)

    service.answer = fails
    watcher, notices = watching(spot_provider="azure", spot_metadata_url=service.url)
    service.reclaim(LEFT_S)
    watcher.start()
    eventually(lambda: notices)
    assert notices[0].by == "azure"
    assert notices[0].left_s == about(LEFT_S)
    assert sum("doesn't tell of reclaims" in line for line in caplog.messages) == 1


@pytest.mark.parametrize(
    ("content", "left_s"), [("", NOTICE_S), ("12.5\n", 12.5), ("9999", NOTICE_S)]
)
def test_a_file_is_a_notice_once_it_appears(tmp_path: Path, content: str, left_s: float) -> None:
    file = tmp_path / "reclaimed"
    watcher, notices = watching(spot_file=file)
    watcher.start()
    assert not notices
    (tmp_path / "new").write_text(content)
    (tmp_path / "new").rename(file)
    eventually(lambda: notices)
    assert notices == [Notice("file", left_s)]


def test_the_first_notice_counts(tmp_path: Path) -> None:
    watcher, notices = watching()
    watcher.notice("sigterm", inf)
    watcher.notice("aws", 60.0)
    assert notices == [Notice("sigterm", NOTICE_S)]
