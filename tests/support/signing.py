"""Keys, certificates and trust files of tests that sign artifacts."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

SINCE = datetime(2026, 1, 1, tzinfo=UTC)
UNTIL = datetime(2126, 1, 1, tzinfo=UTC)
Key = ec.EllipticCurvePrivateKey


def make_key() -> Key:
    return ec.generate_private_key(ec.SECP256R1())


def public_pem(key: Key) -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def private_pem(key: Key) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def certificate_pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def write_tree(folder: Path, files: Mapping[str, bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def write_trust(folder: Path, key: Key, policy: str = "require", more: str = "") -> Path:
    """A trust file with one key; more: lines of its table."""
    folder.mkdir(exist_ok=True)
    (folder / "release.pub").write_bytes(public_pem(key))
    path = folder / "trust.toml"
    path.write_text(
        f'policy = "{policy}"\n[[key]]\nname = "release"\nfile = "release.pub"\n{more}\n'
    )
    return path


@dataclass(frozen=True)
class Authority:
    """Issues certificates."""

    key: Key
    certificate: x509.Certificate

    @classmethod
    def create(cls, name: str) -> "Authority":
        key = make_key()
        return cls(key, certificate(name, key, name, key, *_uses(False, True), ca=True))

    @property
    def pem(self) -> bytes:
        return certificate_pem(self.certificate)

    def issue_authority(self, name: str) -> "Authority":
        key = make_key()
        return Authority(key, self._issue(name, key, ca=True))

    def issue(self, name: str, **terms: Any) -> tuple[Key, x509.Certificate]:
        """terms: until, signs."""
        key = make_key()
        return key, self._issue(name, key, **terms)

    def _issue(self, name: str, key: Key, *, signs: bool = True, **terms: Any) -> x509.Certificate:
        issuer = self.certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
        uses = _uses(signs, terms.get("ca", False))
        return certificate(name, key, str(issuer), self.key, *uses, **terms)


def _uses(signs: bool, ca: bool) -> list[x509.ExtensionType]:
    """Extensions that say what a key is for."""
    usage = x509.KeyUsage(
        digital_signature=signs and not ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=ca,
        crl_sign=ca,
        encipher_only=False,
        decipher_only=False,
    )
    signing = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING])
    return [usage, signing] if signs and not ca else [usage]


def certificate(
    name: str,
    key: Key,
    issuer: str,
    issuer_key: Key,
    *more: Any,
    ca: bool = False,
    until: Any = UNTIL,
) -> x509.Certificate:
    """more: extensions besides those that say who is who."""
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    builder = (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(SINCE, until - timedelta(days=1)))
        .not_valid_after(until)
        .add_extension(x509.BasicConstraints(ca, None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(identifier, critical=False)
    )
    for extension in more:
        builder = builder.add_extension(extension, critical=isinstance(extension, x509.KeyUsage))
    return builder.sign(issuer_key, hashes.SHA256())


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
