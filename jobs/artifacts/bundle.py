"""Signatures of artifacts in the format of OpenSSF Model Signing 1.0, methods key and certificate.

A bundle (Sigstore's, version 0.3) holds an envelope (DSSE), whose payload is a statement (in-toto):
the SHA-256 of every file, and the digest over these. Nothing of a bundle counts before its
signature is verified with a key that the trust file names; what it says should be ignored never
counts.
"""

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Annotated, Any, Literal

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from jobs.artifacts.declared import Untrusted
from jobs.artifacts.folder import IGNORED
from jobs.artifacts.manifest import Manifest

_MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
_PAYLOAD_TYPE = "application/vnd.in-toto+json"
_STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
_PREDICATE_TYPE = "https://model_signing/signature/v1.0"
_HASHES: Mapping[str, type[hashes.HashAlgorithm]] = {
    "secp256r1": hashes.SHA256,
    "secp384r1": hashes.SHA384,
    "secp521r1": hashes.SHA512,
}
"""Hash of a signature, by the curve of its key."""
CURVES = "P-256, P-384, P-521"
MOST_BYTES = 64 << 20  # of a bundle: it lists every file


def _decoded(text: Any) -> bytes:
    """Decodes base64 in the one way that it may be written."""
    try:
        raw = base64.b64decode(text, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raw = b""
    if not raw or base64.b64encode(raw).decode() != text:
        raise ValueError("must be base64")
    return raw


_Base64 = Annotated[bytes, BeforeValidator(_decoded)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class _PublicKey(_Part):
    hint: str = ""
    raw: _Base64 = Field(b"", alias="rawBytes")  # up to version 1.0 of OpenSSF's tool
    details: str = Field("", alias="keyDetails")


class _Certificate(_Part):
    raw: _Base64 = Field(alias="rawBytes")


class _Chain(_Part):
    certificates: list[_Certificate] = Field(min_length=1, max_length=16)


class _Material(_Part):
    public_key: _PublicKey | None = Field(None, alias="publicKey")
    chain: _Chain | None = Field(None, alias="x509CertificateChain")
    log: list[Any] = Field([], alias="tlogEntries", max_length=0)


class _Signature(_Part):
    raw: _Base64 = Field(alias="sig")
    key: str = Field("", alias="keyid", max_length=0)


class _Envelope(_Part):
    payload: _Base64
    payload_type: Literal["application/vnd.in-toto+json"] = Field(alias="payloadType")
    signatures: list[_Signature] = Field(min_length=1, max_length=1)


class Bundle(_Part):
    """Signature of an artifact, parsed; nothing of it is verified yet."""

    media_type: Literal["application/vnd.dev.sigstore.bundle.v0.3+json"] = Field(alias="mediaType")
    material: _Material = Field(alias="verificationMaterial")
    envelope: _Envelope = Field(alias="dsseEnvelope")

    @classmethod
    def from_json(cls, text: str) -> "Bundle":
        """Reads a bundle. Raises Untrusted."""
        if len(text) > MOST_BYTES:
            raise Untrusted(f"the signature is longer than {MOST_BYTES >> 20} MiB")
        try:
            bundle = cls.model_validate(json.loads(text))
        except ValidationError as error:
            wrong = error.errors()[0]
            place = ".".join(map(str, wrong["loc"]))
            raise Untrusted(
                f"the signature is no bundle of OpenSSF Model Signing (method key or certificate): "
                f"{place}: {wrong['msg']}"
            ) from error
        except (ValueError, RecursionError) as error:
            raise Untrusted(f"the signature is no JSON: {error}") from error
        if (bundle.material.public_key is None) == (bundle.material.chain is None):
            raise Untrusted("the signature names neither a key nor certificates, or both")
        return bundle

    @property
    def hint(self) -> str:
        """Fingerprint of the key that it says it was made with; "": it says none."""
        key = self.material.public_key
        if key is None or key.hint:
            return key.hint if key else ""
        return sha256(key.raw).hexdigest() if key.raw else ""

    @property
    def certificates(self) -> list[bytes]:
        """Certificates (DER), that of the signing key first; [] for the method key."""
        chain = self.material.chain
        return [one.raw for one in chain.certificates] if chain else []

    def check_signature(self, key: ec.EllipticCurvePublicKey) -> None:
        """Raises Untrusted unless this key made the signature."""
        algorithm = ec.ECDSA(_HASHES[key.curve.name]())
        try:
            key.verify(self.envelope.signatures[0].raw, _signed(self.envelope.payload), algorithm)
        except InvalidSignature:
            raise Untrusted("the signature is not one of this key over these contents") from None

    def signed_files(self) -> Mapping[str, str]:
        """Returns the SHA-256 of each signed file by its path. Raises Untrusted for a statement
        that isn't about an artifact's files. Counts only after `check_signature`."""
        try:
            return _files(json.loads(self.envelope.payload))
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise Untrusted(f"the signed statement is not one about files: {error!r}") from error


def _files(statement: Any) -> Mapping[str, str]:
    if statement["_type"] != _STATEMENT_TYPE or statement["predicateType"] != _PREDICATE_TYPE:
        raise ValueError(f"its predicate is {statement['predicateType']!r}")
    serialization = statement["predicate"]["serialization"]
    if (serialization["method"], serialization["hash_type"]) != ("files", "sha256"):
        raise ValueError("the files are not signed as wholes by SHA-256; sign them so")
    entries = statement["predicate"]["resources"]
    if any(entry["algorithm"] != "sha256" for entry in entries):
        raise ValueError("a file's digest is not SHA-256")
    files = {entry["name"]: entry["digest"] for entry in entries}
    if len(files) != len(entries):
        raise ValueError("it names a file twice")
    [subject] = statement["subject"]
    raw = b"".join(bytes.fromhex(entry["digest"]) for entry in entries)
    if subject["digest"]["sha256"] != sha256(raw).hexdigest():
        raise ValueError("its digest is not that of its files")
    return files


def sign(
    manifest: Manifest,
    name: str,
    key: ec.EllipticCurvePrivateKey,
    certificates: Sequence[x509.Certificate] = (),
) -> str:
    """Returns a signature of an artifact: a bundle, as JSON.

    name: of the artifact, which only people read. certificates: that of the key first, then those
    that issued it; (): the key itself will be trusted.
    """
    payload = json.dumps(_statement(manifest, name), ensure_ascii=False).encode()
    raw = key.sign(_signed(payload), ec.ECDSA(_HASHES[key.curve.name]()))
    chain = [{"rawBytes": _encoded(one.public_bytes(Encoding.DER))} for one in certificates]
    public = {"publicKey": {"hint": fingerprint(key.public_key())}}
    bundle = {
        "mediaType": _MEDIA_TYPE,
        "verificationMaterial": {
            **({"x509CertificateChain": {"certificates": chain}} if chain else public),
            "tlogEntries": [],
        },
        "dsseEnvelope": {
            "payload": _encoded(payload),
            "payloadType": _PAYLOAD_TYPE,
            "signatures": [{"sig": _encoded(raw), "keyid": ""}],
        },
    }
    return json.dumps(bundle)


def _statement(manifest: Manifest, name: str) -> dict[str, Any]:
    return {
        "_type": _STATEMENT_TYPE,
        "subject": [
            {"name": name, "digest": {"sha256": manifest.digest.removeprefix("sha256:")}},
        ],
        "predicateType": _PREDICATE_TYPE,
        "predicate": {
            "serialization": {
                "method": "files",
                "hash_type": "sha256",
                "allow_symlinks": True,
                "ignore_paths": sorted(IGNORED),
            },
            "resources": [
                {"name": file.path, "algorithm": "sha256", "digest": file.sha256}
                for file in manifest.files
            ],
        },
    }


def fingerprint(key: ec.EllipticCurvePublicKey) -> str:
    """Returns the SHA-256 of a public key's PEM, as bundles name keys."""
    pem = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return sha256(pem).hexdigest()


def is_supported(key: object) -> bool:
    """Returns True for the public half of a key that may sign: P-256, P-384 or P-521."""
    return isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name in _HASHES


def _signed(payload: bytes) -> bytes:
    """Returns the bytes that are signed: DSSE's pre-authentication encoding."""
    head = f"DSSEv1 {len(_PAYLOAD_TYPE)} {_PAYLOAD_TYPE} {len(payload)} "
    return head.encode() + payload


def _encoded(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
