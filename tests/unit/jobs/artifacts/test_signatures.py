import json
import shutil
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from jobs.artifacts import bundle, folder, trust
from jobs.artifacts.declared import Untrusted
from jobs.artifacts.manifest import ArtifactFile, Manifest
from jobs.artifacts.trust import Trust
from jobs.settings import SettingsError
from tests.support import signing

REFERENCE = Path(__file__).parent / "reference"
NOW = datetime(2026, 12, 1, tzinfo=UTC)
FILES = {"config.json": b"{}", "a.txt": b"a", "a/b.bin": b"b" * 1000, "load.py": b"pass\n"}
CURVES = [ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1()]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return signing.write_tree(tmp_path / "model", FILES)


@pytest.fixture
def key() -> ec.EllipticCurvePrivateKey:
    return signing.make_key()


@pytest.mark.parametrize("curve", CURVES, ids=lambda curve: curve.name)
def test_a_signature_is_verified_with_its_key(
    model: Path, tmp_path: Path, curve: ec.EllipticCurve
) -> None:
    own = ec.generate_private_key(curve)
    manifest = folder.read(model)
    policy = trust.read(signing.write_trust(tmp_path / "trust", own))
    assert policy.check(manifest, [bundle.sign(manifest, "model", own)]) == "release"


@pytest.mark.parametrize("name", ["key-256", "key-384", "key-521"])
def test_a_signature_of_the_reference_implementation_is_verified(tmp_path: Path, name: str) -> None:
    toml = f'policy = "require"\n[[key]]\nname = "r"\nfile = "{REFERENCE / name}.pub"\n'
    policy = trust.read(signing.write(tmp_path / "trust.toml", toml.encode()))
    manifest = folder.read(REFERENCE / "model")
    text = (REFERENCE / f"{name}.sig").read_text()
    assert policy.check(manifest, [text]) == "r"
    signed = bundle.Bundle.from_json(text).envelope.payload
    [subject] = json.loads(signed)["subject"]
    assert f"sha256:{subject['digest']['sha256']}" == manifest.digest


def _authority(tmp_path: Path, pem: bytes, more: str = "") -> Trust:
    signing.write(tmp_path / "ca.pem", pem)
    toml = f'policy = "require"\n[[authority]]\nname = "ca"\nfile = "ca.pem"\n{more}\n'
    return trust.read(signing.write(tmp_path / "trust.toml", toml.encode()))


def test_a_certificate_of_the_reference_implementation_is_verified(tmp_path: Path) -> None:
    policy = _authority(tmp_path, (REFERENCE / "ca.pem").read_bytes())
    text = (REFERENCE / "certificate.sig").read_text()
    assert policy.check(folder.read(REFERENCE / "model"), [text], NOW) == "ca: CN=signer"


@pytest.mark.heavy
def test_our_signatures_are_verified_by_the_reference_implementation(
    model: Path, tmp_path: Path, key: ec.EllipticCurvePrivateKey
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


def _tampered_byte(model: Path) -> str:
    (model / "a/b.bin").write_bytes(b"b" * 999 + b"c")
    return "a/b.bin differ"


def _truncated(model: Path) -> str:
    (model / "a/b.bin").write_bytes(b"b" * 999)
    return "a/b.bin differ"


def _extra_code(model: Path) -> str:
    (model / "modeling.py").write_text("pass\n")
    return "modeling.py are not in"


def _missing(model: Path) -> str:
    (model / "load.py").unlink()
    return "load.py are in what the key 'release' signed, and missing"


def _renamed(model: Path) -> str:
    (model / "load.py").rename(model / "loae.py")
    return "loae.py are not in"


@pytest.mark.parametrize("change", [_tampered_byte, _truncated, _extra_code, _missing, _renamed])
def test_a_changed_folder_is_refused_with_the_name_of_the_file(
    model: Path,
    tmp_path: Path,
    key: ec.EllipticCurvePrivateKey,
    change: Callable[[Path], str],
) -> None:
    text = bundle.sign(folder.read(model), "model", key)
    policy = trust.read(signing.write_trust(tmp_path / "trust", key))
    expected = change(model)
    with pytest.raises(Untrusted, match=expected):
        policy.check(folder.read(model), [text])


def test_other_names_over_the_same_contents_are_refused(
    tmp_path: Path, key: ec.EllipticCurvePrivateKey
) -> None:
    """The digest over all files doesn't cover their names; the signature does."""
    signed = Manifest.create([ArtifactFile("a", 1, "0" * 64), ArtifactFile("b", 1, "1" * 64)])
    served = Manifest.create([ArtifactFile("a", 1, "0" * 64), ArtifactFile("c", 1, "1" * 64)])
    assert signed.digest == served.digest
    policy = trust.read(signing.write_trust(tmp_path / "trust", key))
    with pytest.raises(Untrusted, match="c are not in"):
        policy.check(served, [bundle.sign(signed, "model", key)])


def test_what_the_bundle_says_should_be_ignored_never_counts(
    tmp_path: Path, model: Path, key: ec.EllipticCurvePrivateKey, monkeypatch: Any
) -> None:
    signed = folder.read(model)
    monkeypatch.setattr(bundle, "IGNORED", frozenset({"evil.py"}))
    text = bundle.sign(signed, "model", key)
    (model / "evil.py").write_text("pass\n")
    policy = trust.read(signing.write_trust(tmp_path / "trust", key))
    with pytest.raises(Untrusted, match=r"evil\.py are not in"):
        policy.check(folder.read(model), [text])


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ("valid_until = 2026-11-30T00:00:00Z", "'release' expired at 2026-11-30"),
        ("valid_from = 2026-12-02T00:00:00Z", "'release' is not valid before 2026-12-02"),
        ("revoked_at = 2026-11-30T12:30:00Z", "'release' was revoked at 2026-11-30 12:30"),
    ],
)
def test_a_key_counts_only_in_its_time(
    model: Path, tmp_path: Path, key: ec.EllipticCurvePrivateKey, more: str, reason: str
) -> None:
    manifest = folder.read(model)
    text = bundle.sign(manifest, "model", key)
    policy = trust.read(signing.write_trust(tmp_path / "trust", key, more=more))
    with pytest.raises(Untrusted, match=reason):
        policy.check(manifest, [text], NOW)


def test_a_key_that_is_not_trusted_is_named(
    model: Path, tmp_path: Path, key: ec.EllipticCurvePrivateKey
) -> None:
    other, manifest = signing.make_key(), folder.read(model)
    policy = trust.read(signing.write_trust(tmp_path / "trust", key))
    with pytest.raises(Untrusted, match=bundle.fingerprint(other.public_key())):
        policy.check(manifest, [bundle.sign(manifest, "model", other)])
    with pytest.raises(Untrusted, match="no signature"):
        policy.check(manifest, [])
    both = [bundle.sign(manifest, "model", one) for one in (other, key)]
    assert policy.check(manifest, both) == "release"


def test_a_hint_that_names_another_key_is_refused(
    model: Path, tmp_path: Path, key: ec.EllipticCurvePrivateKey
) -> None:
    other, manifest = signing.make_key(), folder.read(model)
    text = bundle.sign(manifest, "model", other)
    forged = text.replace(
        bundle.fingerprint(other.public_key()), bundle.fingerprint(key.public_key())
    )
    policy = trust.read(signing.write_trust(tmp_path / "trust", key))
    with pytest.raises(Untrusted, match="'release': the signature is not one of this key"):
        policy.check(manifest, [forged])


@pytest.mark.parametrize(
    "change",
    [
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
    ],
)
def test_a_mutated_bundle_is_refused(
    model: Path,
    tmp_path: Path,
    key: ec.EllipticCurvePrivateKey,
    change: Callable[[dict[str, Any]], object],
) -> None:
    manifest = folder.read(model)
    signed = json.loads(bundle.sign(manifest, "model", key))
    change(signed)
    policy = trust.read(signing.write_trust(tmp_path / "trust", key))
    with pytest.raises(Untrusted):
        policy.check(manifest, [json.dumps(signed)])


def test_warn_and_off_take_what_nobody_signed(
    model: Path, tmp_path: Path, key: ec.EllipticCurvePrivateKey, caplog: Any
) -> None:
    manifest = folder.read(model)
    warn = trust.read(signing.write_trust(tmp_path / "trust", key, policy="warn"))
    assert warn.check(manifest, []) == ""
    assert "no signature" in caplog.text
    assert trust.read(None).check(manifest, ["{"]) == ""


class TestCertificates:
    @pytest.fixture
    def root(self) -> signing.Authority:
        return signing.Authority.create("root")

    def _sign(
        self, model: Path, key: ec.EllipticCurvePrivateKey, *chain: x509.Certificate
    ) -> tuple[Manifest, list[str]]:
        manifest = folder.read(model)
        return manifest, [bundle.sign(manifest, "model", key, chain)]

    def test_an_expired_one_is_refused(
        self, model: Path, tmp_path: Path, root: signing.Authority
    ) -> None:
        """OpenSSF's own verifier takes it: it asks for the time at which it began."""
        key, leaf = root.issue("signer", until=NOW - timedelta(hours=1))
        with pytest.raises(Untrusted, match=r"CN=signer.*not valid"):
            _authority(tmp_path, root.pem).check(*self._sign(model, key, leaf), NOW)

    def test_a_revoked_one_is_refused(
        self, model: Path, tmp_path: Path, root: signing.Authority
    ) -> None:
        key, leaf = root.issue("signer")
        more = f'revoked = ["{leaf.serial_number:X}"]'
        with pytest.raises(Untrusted, match=f"{leaf.serial_number:x} of 'CN=signer' is revoked"):
            _authority(tmp_path, root.pem, more).check(*self._sign(model, key, leaf), NOW)

    def test_one_of_another_authority_is_refused(
        self, model: Path, tmp_path: Path, root: signing.Authority
    ) -> None:
        other = signing.Authority.create("root")
        key, leaf = other.issue("signer")
        signed = self._sign(model, key, leaf, other.certificate)
        with pytest.raises(Untrusted, match="'CN=signer' is not trusted"):
            _authority(tmp_path, root.pem).check(*signed, NOW)

    def test_one_that_is_not_for_signatures_is_refused(
        self, model: Path, tmp_path: Path, root: signing.Authority
    ) -> None:
        key, leaf = root.issue("signer", signs=False)
        with pytest.raises(Untrusted, match="not for signatures"):
            _authority(tmp_path, root.pem).check(*self._sign(model, key, leaf), NOW)

    def test_one_whose_issuer_is_no_authority_is_refused(
        self, model: Path, tmp_path: Path, root: signing.Authority
    ) -> None:
        own, leaf = root.issue("signer")
        forged = signing.Authority(own, leaf)
        key, fake = forged.issue("fake")
        with pytest.raises(Untrusted, match="'CN=fake' is not trusted"):
            _authority(tmp_path, root.pem).check(*self._sign(model, key, fake, leaf), NOW)


@pytest.mark.parametrize(
    ("toml", "problem"),
    [
        ("", "policy is missing"),
        ('policy = "perhaps"', "policy must be"),
        ('policy = "require"', "nothing would load"),
        ('policy = "off"\nkeys = []', "unknown key 'keys'"),
        ('policy = "warn"\n[[key]]\nname = "a"\nfile = "no.pub"', r"no\.pub can't be read"),
        ('policy = "warn"\n[[key]]\nname = "a"\nfile = "trust.toml"', "holds no public key"),
    ],
)
def test_a_broken_trust_file_is_refused(tmp_path: Path, toml: str, problem: str) -> None:
    path = signing.write(tmp_path / "trust.toml", toml.encode())
    with pytest.raises(SettingsError, match=problem):
        trust.read(path)
