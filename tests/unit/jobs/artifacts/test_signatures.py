import json
import shutil
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from jobs.artifacts import bundle, folder, trust
from jobs.artifacts.declared import Untrusted
from jobs.artifacts.manifest import ArtifactFile, Manifest
from jobs.artifacts.trust import Trust
from jobs.settings import SettingsError
from tests.support import signing
from tests.support.cases import each

REFERENCE = Path(__file__).parent / "reference"
NOW = datetime(2026, 12, 1, tzinfo=UTC)
FILES = {"config.json": b"{}", "a.txt": b"a", "a/b.bin": b"b" * 1000, "load.py": b"pass\n"}
Key = ec.EllipticCurvePrivateKey
CURVES = [ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1()]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return signing.write_tree(tmp_path / "model", FILES)


@pytest.fixture
def key() -> Key:
    return signing.make_key()


@pytest.fixture
def policy(tmp_path: Path, key: Key) -> Trust:
    """Trusts the key alone."""
    return trust.read(signing.write_trust(tmp_path / "trust", key))


def test_a_signature_is_verified_with_its_key(model: Path, tmp_path: Path) -> None:
    manifest = folder.read(model)
    for curve, case in each(CURVES, name=attrgetter("name")):
        with case:
            own = ec.generate_private_key(curve)
            policy = trust.read(signing.write_trust(tmp_path / curve.name, own))
            assert policy.check(manifest, [bundle.sign(manifest, "model", own)]) == "release"


def _authority(tmp_path: Path, pem: bytes, more: str = "") -> Trust:
    signing.write(tmp_path / "ca.pem", pem)
    toml = f'policy = "require"\n[[authority]]\nname = "ca"\nfile = "ca.pem"\n{more}\n'
    return trust.read(signing.write(tmp_path / "trust.toml", toml.encode()))


def test_signatures_and_a_certificate_of_the_reference_implementation_are_verified(
    tmp_path: Path,
) -> None:
    manifest = folder.read(REFERENCE / "model")
    for name, case in each(["key-256", "key-384", "key-521"]):
        with case:
            toml = f'policy = "require"\n[[key]]\nname = "r"\nfile = "{REFERENCE / name}.pub"\n'
            policy = trust.read(signing.write(tmp_path / "trust.toml", toml.encode()))
            text = (REFERENCE / f"{name}.sig").read_text()
            assert policy.check(manifest, [text]) == "r"
            [subject] = json.loads(bundle.Bundle.from_json(text).envelope.payload)["subject"]
            assert f"sha256:{subject['digest']['sha256']}" == manifest.digest
    policy = _authority(tmp_path, (REFERENCE / "ca.pem").read_bytes())
    text = (REFERENCE / "certificate.sig").read_text()
    assert policy.check(manifest, [text], NOW) == "ca: CN=signer"


@pytest.mark.heavy
def test_our_signatures_are_verified_by_the_reference_implementation(
    model: Path, tmp_path: Path, key: Key
) -> None:
    tool = shutil.which("model_signing")
    if not tool:
        pytest.skip("needs the command model_signing: pip install model-signing pyopenssl")
    signing.write_tree(model, {".gitattributes": b"*.bin binary\n"})
    (model / "link.json").symlink_to("config.json")
    manifest = folder.read(model)
    signature = model / folder.SIGNATURE
    public = signing.write(tmp_path / "key.pub", signing.public_pem(key))
    root = signing.Authority.create("root")
    between = root.issue_authority("between")
    own, leaf = between.issue("signer")
    ca = signing.write(tmp_path / "ca.pem", root.pem)

    def verify(method: str, *options: str | Path) -> int:
        command = [tool, "verify", method, model, "--signature", signature, "--allow_symlinks"]
        return subprocess.run([*command, *options], check=False).returncode

    signature.write_text(bundle.sign(manifest, "model", key))
    assert verify("key", "--public_key", public) == 0
    (model / "a.txt").write_bytes(b"b")
    assert verify("key", "--public_key", public) != 0
    (model / "a.txt").write_bytes(b"a")
    signature.write_text(bundle.sign(manifest, "model", own, [leaf, between.certificate]))
    assert verify("certificate", "--certificate_chain", ca) == 0


def test_a_changed_folder_is_refused_with_the_name_of_the_file(
    model: Path, policy: Trust, key: Key
) -> None:
    text = bundle.sign(folder.read(model), "model", key)
    load, renamed, b = model / "load.py", model / "loae.py", model / "a/b.bin"
    cases: list[tuple[Callable[[], object], str]] = [
        (lambda: b.write_bytes(b"b" * 999 + b"c"), "a/b.bin differ"),
        (lambda: b.write_bytes(b"b" * 999), "a/b.bin differ"),
        (lambda: (model / "modeling.py").write_text("pass\n"), "modeling.py are not in"),
        (load.unlink, "load.py are in what the key 'release' signed, and missing"),
        (lambda: load.rename(renamed), "loae.py are not in"),
    ]
    for (change, said), case in each(cases, name=itemgetter(1)):
        with case:
            shutil.rmtree(model)
            signing.write_tree(model, FILES)
            change()
            with pytest.raises(Untrusted, match=said):
                policy.check(folder.read(model), [text])


def test_names_that_were_not_signed_never_count_whatever_the_bundle_ignores(
    policy: Trust, key: Key, model: Path, monkeypatch: Any
) -> None:
    signed = Manifest.create([ArtifactFile("a", 1, "0" * 64), ArtifactFile("b", 1, "1" * 64)])
    served = Manifest.create([ArtifactFile("a", 1, "0" * 64), ArtifactFile("c", 1, "1" * 64)])
    assert signed.digest == served.digest, "it doesn't cover names; the signature does"
    with pytest.raises(Untrusted, match="c are not in"):
        policy.check(served, [bundle.sign(signed, "model", key)])
    signed = folder.read(model)
    monkeypatch.setattr(bundle, "IGNORED", frozenset({"evil.py"}))
    text = bundle.sign(signed, "model", key)
    (model / "evil.py").write_text("pass\n")
    with pytest.raises(Untrusted, match=r"evil\.py are not in"):
        policy.check(folder.read(model), [text])


def test_a_key_counts_only_in_its_time(model: Path, tmp_path: Path, key: Key) -> None:
    cases = [
        ("valid_until = 2026-11-30T00:00:00Z", "'release' expired at 2026-11-30"),
        ("valid_from = 2026-12-02T00:00:00Z", "'release' is not valid before 2026-12-02"),
        ("revoked_at = 2026-11-30T12:30:00Z", "'release' was revoked at 2026-11-30 12:30"),
    ]
    for (more, reason), case in each(cases):
        with case:
            manifest = folder.read(model)
            text = bundle.sign(manifest, "model", key)
            policy = trust.read(signing.write_trust(tmp_path / "trust", key, more=more))
            with pytest.raises(Untrusted, match=reason):
                policy.check(manifest, [text], NOW)


def test_a_key_that_is_not_trusted_is_named_and_a_hint_that_names_another_refused(
    model: Path, policy: Trust, key: Key
) -> None:
    other, manifest = signing.make_key(), folder.read(model)
    with pytest.raises(Untrusted, match=bundle.fingerprint(other.public_key())):
        policy.check(manifest, [bundle.sign(manifest, "model", other)])
    with pytest.raises(Untrusted, match="no signature"):
        policy.check(manifest, [])
    both = [bundle.sign(manifest, "model", one) for one in (other, key)]
    assert policy.check(manifest, both) == "release"
    names = (bundle.fingerprint(one.public_key()) for one in (other, key))
    forged = bundle.sign(manifest, "model", other).replace(*names)
    with pytest.raises(Untrusted, match="'release': the signature is not one of this key"):
        policy.check(manifest, [forged])


def test_a_mutated_bundle_is_refused(model: Path, policy: Trust, key: Key) -> None:
    cases = [
        lambda one: one.update(mediaType="application/json"),
        lambda one: one.update(more=1),
        lambda one: one["verificationMaterial"].update(publicKey=5),
        lambda one: one["verificationMaterial"].update(publicKex={}),
        lambda one: one["verificationMaterial"].pop("publicKey"),
        lambda one: one["verificationMaterial"].update(x509CertificateChain={"certificates": []}),
        lambda one: one["verificationMaterial"]["publicKey"].update(hint="0" * 64),
        lambda one: one["dsseEnvelope"].update(payload="e30="),
        lambda one: one["dsseEnvelope"].update(payloadType="text/plain"),
        lambda one: one["dsseEnvelope"].update(signatures=[]),
        lambda one: one["dsseEnvelope"]["signatures"].append(one["dsseEnvelope"]["signatures"][0]),
        lambda one: one["dsseEnvelope"]["signatures"][0].update(sig="MAA="),
        lambda one: one["dsseEnvelope"]["signatures"][0].update(sig="*"),
    ]
    for (_, change), case in each(enumerate(cases)):
        with case:
            manifest = folder.read(model)
            signed = json.loads(bundle.sign(manifest, "model", key))
            change(signed)
            with pytest.raises(Untrusted):
                policy.check(manifest, [json.dumps(signed)])


def test_warn_and_off_take_what_nobody_signed(
    model: Path, tmp_path: Path, key: Key, caplog: Any
) -> None:
    manifest = folder.read(model)
    warn = trust.read(signing.write_trust(tmp_path / "trust", key, policy="warn"))
    assert warn.check(manifest, []) == ""
    assert "no signature" in caplog.text
    assert trust.read(None).check(manifest, ["{"]) == ""


def test_a_certificate_with_a_fault_is_refused(model: Path, tmp_path: Path) -> None:
    root, other = signing.Authority.create("root"), signing.Authority.create("root")
    # OpenSSF's own verifier takes it: it asks for the time at which it began.
    expired = root.issue("signer", until=NOW - timedelta(hours=1))
    unfit, foreign, good = root.issue("signer", signs=False), other.issue("signer"), root.issue("a")
    fake = signing.Authority(*good).issue("fake")
    serial = good[1].serial_number
    cases = [
        (expired, (), "", "CN=signer.*not valid"),
        (unfit, (), "", "not for signatures"),
        (foreign, [other.certificate], "", "'CN=signer' is not trusted"),
        (fake, [good[1]], "", "'CN=fake' is not trusted"),
        (good, (), f'revoked = ["{serial:X}"]', f"{serial:x} of 'CN=a' is revoked"),
    ]
    manifest = folder.read(model)
    for ((key, leaf), issuers, more, said), case in each(cases, name=itemgetter(3)):
        with case:
            signed = bundle.sign(manifest, "model", key, [leaf, *issuers])
            with pytest.raises(Untrusted, match=said):
                _authority(tmp_path, root.pem, more).check(manifest, [signed], NOW)


def test_a_broken_trust_file_is_refused(tmp_path: Path) -> None:
    cases = [
        ("", "policy is missing"),
        ('policy = "perhaps"', "policy must be"),
        ('policy = "require"', "nothing would load"),
        ('policy = "off"\nkeys = []', "unknown key 'keys'"),
        ('policy = "warn"\n[[key]]\nname = "a"\nfile = "no.pub"', r"no\.pub can't be read"),
        ('policy = "warn"\n[[key]]\nname = "a"\nfile = "trust.toml"', "holds no public key"),
    ]
    for (toml, problem), case in each(cases):
        with case:
            path = signing.write(tmp_path / "trust.toml", toml.encode())
            with pytest.raises(SettingsError, match=problem):
                trust.read(path)
