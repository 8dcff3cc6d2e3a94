"""Versions with artifacts, from the registry's rows to what a worker's engine loads."""

import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from sqlalchemy import Engine

from jobs.artifacts import bundle
from jobs.artifacts.declared import Untrusted
from jobs.artifacts.manifest import ArtifactFile, Manifest
from jobs.artifacts.push import blob_key, push
from jobs.blobs.store import open_store
from jobs.models.adapters import CONFIG, WEIGHTS, Adapter
from jobs.models.model import AdaptedModel, Model
from jobs.models.probe import Probe
from jobs.settings import Settings
from jobs.store.registry import artifacts
from tests.support import signing
from tests.support.stores.transactions import transact
from workers.device import probe
from workers.device.probe import ProbeFailed
from workers.engines import registry as engines
from workers.engines.adapters import files
from workers.engines.protocol import Permanent
from workers.process.artifacts.staging import Stager

CODE = b"SAMPLES = ['a']\ndef predict(batch):\n    return [len(text) / 3 for text in batch]\n"


def stage(stager: Stager, model: Model) -> Model:
    return stager.stage(model, stager.verify(model.artifact), lambda: False)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "home")


@pytest.fixture
def key() -> ec.EllipticCurvePrivateKey:
    return signing.make_key()


@pytest.fixture
def trusting(settings: Settings, key: ec.EllipticCurvePrivateKey, tmp_path: Path) -> Settings:
    """Settings that trust the key."""
    return settings.evolve(trust=signing.write_trust(tmp_path / "trust", key))


def register(database: Engine, settings: Settings, folder: Path) -> Manifest:
    manifest = push(open_store(settings.files), folder)
    store(database, manifest)
    return manifest


def store(database: Engine, manifest: Manifest, digest: str = "") -> None:
    added = digest or manifest.digest, manifest.as_json(), manifest.size
    transact(database, artifacts.add, *added, "test")


def version(digest: str, **more: str) -> Model:
    options = {"file": f"/artifacts/{digest}/code/model.py"}
    return Model("m", "1", "python", options=options, task="text", artifact=digest, **more)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return signing.write_tree(tmp_path / "model", {"code/model.py": CODE, "config.json": b"{}"})


def test_engines_load_from_the_cache_and_give_the_answers_of_their_probe(
    database: Engine, settings: Settings, model: Path
) -> None:
    manifest = register(database, settings, model)
    stager, known = Stager(settings, database), Probe(["abc", "a"], [1.0, 0.3334])
    staged = stage(stager, version(manifest.digest, probe=known.as_json()))
    file = Path(staged.options["file"])
    assert (settings.home / "artifacts" / "snapshots") in file.parents
    assert staged.options["file_sha256"] == manifest.digests["code/model.py"]
    with closing(engines.load(staged, "cpu")) as engine:
        assert probe.answers(staged, engine, ["abc"], {}) == [1.0]
        probe.check(staged, engine)
        wrong = version(manifest.digest, probe=Probe(["abc", "a"], [1.0, 0.35]).as_json())
        with pytest.raises(
            ProbeFailed, match=r"input 2 is another.*: output is 0\.33.*, not 0\.35"
        ):
            probe.check(wrong.staged(Path("/x"), {}), engine)
    stager.release(staged)


def test_adapters_are_staged_with_it(database: Engine, settings: Settings, model: Path) -> None:
    signing.write_tree(model, {"adapters/legal/adapter_config.json": b"{}"})
    manifest = register(database, settings, model)
    path = f"/artifacts/{manifest.digest}/adapters/legal"
    adapters = Adapter("legal", path), Adapter("far", "s3://bucket/far")
    staged = stage(Stager(settings, database), replace(version(manifest.digest), adapters=adapters))
    assert (Path(staged.adapters[0].path) / "adapter_config.json").read_bytes() == b"{}"
    assert staged.adapters[1].path == "s3://bucket/far"


def test_an_adapter_is_staged_for_its_base_alone_as_a_trusted_key_signed_it(
    database: Engine, trusting: Settings, tmp_path: Path, key: ec.EllipticCurvePrivateKey
) -> None:
    folder = signing.write_tree(tmp_path / "legal", {CONFIG: b"{}", WEIGHTS: b"1234"})
    manifest = push(open_store(trusting.files), folder)
    transact(database, artifacts.add, manifest.digest, manifest.as_json(), 1, "test", "m@1")
    stager, adapter = Stager(trusting, database), Adapter("legal", artifact=manifest.digest)

    def staged(base: str = "1") -> Adapter:
        model = AdaptedModel.create(Model("m", base, "encoder"), adapter)
        return stager.stage_adapter(model, lambda: False)

    def refused(base: str = "1") -> str:
        with pytest.raises(Permanent) as error:
            files.read(staged(base))
        return str(error.value)

    assert "no signature" in refused()
    transact(database, artifacts.sign, manifest.digest, bundle.sign(manifest, "legal", key), "test")
    assert "is no adapter of m@2, but of m@1" in refused("2")
    found = staged()
    assert Path(found.path, WEIGHTS).read_bytes() == b"1234"
    assert found.sha256 == manifest.digests[WEIGHTS]
    assert found.identity == adapter.identity
    stored = Path(trusting.files.removeprefix("file:")) / blob_key(found.sha256)
    stored.chmod(0o600)
    stored.write_bytes(b"4321")
    shutil.rmtree(Path(found.path).parents[1] / "blobs")
    assert f"{WEIGHTS}: the blob" in (said := refused())
    assert "'release' signed" in said


def test_only_what_a_trusted_key_signed_is_staged(
    database: Engine, trusting: Settings, model: Path, key: ec.EllipticCurvePrivateKey
) -> None:
    manifest = register(database, trusting, model)
    stager, its = Stager(trusting, database), version(manifest.digest)

    def sign(key: ec.EllipticCurvePrivateKey) -> None:
        signature = bundle.sign(manifest, "m", key)
        transact(database, artifacts.sign, manifest.digest, signature, "test")

    with pytest.raises(Untrusted, match="no signature"):
        stage(stager, its)
    sign(signing.make_key())
    with pytest.raises(Untrusted, match="doesn't have the key"):
        stage(stager, its)
    sign(key)
    stage(stager, its)
    signing.write_trust(trusting.trust.parent, key, more="revoked_at = 2026-01-01T00:00:00Z")
    with pytest.raises(Untrusted, match="'release' was revoked"):
        stage(stager, its)


def test_signed_bytes_of_one_version_are_not_served_as_another(
    database: Engine, trusting: Settings, tmp_path: Path, key: ec.EllipticCurvePrivateKey
) -> None:
    ours = [
        register(database, trusting, signing.write_tree(tmp_path / name, {"w": name.encode()}))
        for name in ("one", "two")
    ]
    transact(database, artifacts.sign, ours[1].digest, bundle.sign(ours[0], "m", key), "test")
    with pytest.raises(Untrusted, match="w differ"):
        stage(Stager(trusting, database), version(ours[1].digest))


def test_a_manifest_of_another_digest_is_refused(database: Engine, settings: Settings) -> None:
    digest = f"sha256:{'5' * 64}"
    store(database, Manifest.create([ArtifactFile("a", 1, "0" * 64)]), digest)
    with pytest.raises(Untrusted, match="has the digest"):
        stage(Stager(settings, database), version(digest))
    with pytest.raises(Untrusted, match="has no artifact"):
        stage(Stager(settings, database), version(f"sha256:{'6' * 64}"))
