"""Trust in artifacts: the keys that may sign them, since when and until when.

The trust file (TOML) that MILLRACE_TRUST names:

policy = "require"  # or "warn", or "off"

[[key]]
name = "release"
file = "release.pub"              # PEM, below this file: a public key, P-256, P-384 or P-521
valid_from = 2026-01-01T00:00:00Z # these three may be missing
valid_until = 2027-01-01T00:00:00Z
revoked_at = 2026-07-01T00:00:00Z

[[authority]]
name = "release-ca"
file = "ca.pem"                   # certificates (PEM) that issue those of signing keys
revoked = ["4f2a…"]               # serial numbers (hexadecimal) of revoked certificates

Signatures carry no time that can be trusted: a key counts at the moment when an artifact is
verified, not when it signed.
"""

import logging
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
)

from jobs.artifacts.bundle import CURVES, Bundle, fingerprint, is_supported
from jobs.artifacts.certificates import signing_key
from jobs.artifacts.declared import Untrusted
from jobs.artifacts.manifest import Manifest
from jobs.problems import described
from jobs.settings import SettingsError

_log = logging.getLogger(__name__)
Policy = Literal["off", "warn", "require"]


def _below_file(path: str, info: ValidationInfo) -> str:
    return str(Path(info.context or "") / path)


def _public_key(path: str) -> ec.EllipticCurvePublicKey:
    content = _content(path)
    try:
        key = load_pem_public_key(content)
    except UnsupportedAlgorithm:
        key = None
    except ValueError as error:
        raise ValueError(f"{path} holds no public key in PEM") from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or not is_supported(key):
        raise ValueError(f"the key of {path} is none of {CURVES}")
    return key


def _certificates(path: str) -> list[x509.Certificate]:
    content = _content(path)
    try:
        return x509.load_pem_x509_certificates(content)
    except ValueError as error:
        raise ValueError(f"{path} holds no certificates in PEM") from error


def _content(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ValueError(f"{path} can't be read: {error.strerror}") from error


def _holds(read: Callable[[str], object]) -> AfterValidator:
    """Returns a validator of paths whose file must be readable so."""
    return AfterValidator(lambda path: read(path) and path)


_KeyFile = Annotated[str, AfterValidator(_below_file), _holds(_public_key)]
_CertificatesFile = Annotated[str, AfterValidator(_below_file), _holds(_certificates)]
_Serial = Annotated[str, Field(pattern="^[0-9a-fA-F]+$")]


class _Signer(BaseModel):
    """Whoever may sign: times between which it counts."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: str
    valid_from: AwareDatetime | None = None
    valid_until: AwareDatetime | None = None
    revoked_at: AwareDatetime | None = None

    def problem(self, at: datetime) -> str:
        """Returns why it doesn't count at this time, or an empty text."""
        if self.revoked_at and at >= self.revoked_at:
            return f"the key {self.name!r} was revoked at {self.revoked_at:%Y-%m-%d %H:%M}"
        if self.valid_until and at >= self.valid_until:
            return f"the key {self.name!r} expired at {self.valid_until:%Y-%m-%d %H:%M}"
        if self.valid_from and at < self.valid_from:
            return f"the key {self.name!r} is not valid before {self.valid_from:%Y-%m-%d %H:%M}"
        return ""


class _Key(_Signer):
    """Public key that may sign."""

    file: _KeyFile

    @property
    def public(self) -> ec.EllipticCurvePublicKey:
        """The key, as its file has it now."""
        return _public_key(self.file)


class _Authority(_Signer):
    """Issuer of certificates whose keys may sign."""

    file: _CertificatesFile
    revoked: list[_Serial] = Field([])  #: serial numbers of certificates, hexadecimal

    @property
    def roots(self) -> list[x509.Certificate]:
        """Its certificates, as their file has them now."""
        return _certificates(self.file)


class Trust(BaseModel):
    """Keys and authorities that are trusted, and what happens without their signature."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    policy: Policy
    key: list[_Key] = Field([])
    authority: list[_Authority] = Field([])

    def check(self, manifest: Manifest, bundles: Sequence[str], now: datetime | None = None) -> str:
        """Returns the name of the key that signed an artifact.

        Without a signature that counts: raises Untrusted under "require", with the reason of each;
        otherwise returns an empty text, which "warn" logs.
        """
        if self.policy == "off":
            return ""
        reasons = list[str]()
        for text in bundles:
            try:
                return self._signer(manifest, text, now or datetime.now(UTC))
            except Untrusted as reason:
                reasons.append(str(reason))
        why = "; ".join(dict.fromkeys(reasons)) or "it has no signature"
        message = f"the artifact {manifest.digest} is not trusted: {why}"
        if self.policy == "require":
            raise Untrusted(message)
        _log.warning("%s; it is loaded, since the policy is warn", message)
        return ""

    def _signer(self, manifest: Manifest, text: str, at: datetime) -> str:
        """Returns the name of the signer. Raises Untrusted."""
        bundle = Bundle.from_json(text)
        name, key = self._key(bundle, at)
        try:
            bundle.check_signature(key)
        except Untrusted as error:
            raise Untrusted(f"key {name!r}: {error}") from None
        signed = f"what the key {name!r} signed"
        if differences := list(manifest.differences(bundle.signed_files(), signed)):
            raise Untrusted("; ".join(differences))
        return name

    def _key(self, bundle: Bundle, at: datetime) -> tuple[str, ec.EllipticCurvePublicKey]:
        """Returns the trusted key that a bundle names, or that of its certificate."""
        if bundle.certificates:
            return self._certified(bundle.certificates, at)
        known = {fingerprint(one.public): one for one in self.key}
        if not (found := known.get(bundle.hint)):
            raise Untrusted(f"the trust file doesn't have the key {bundle.hint or '(unnamed)'}")
        if problem := found.problem(at):
            raise Untrusted(problem)
        return found.name, found.public

    def _certified(
        self, certificates: Sequence[bytes], at: datetime
    ) -> tuple[str, ec.EllipticCurvePublicKey]:
        reasons = list[str]()
        for authority in self.authority:
            if problem := authority.problem(at):
                reasons.append(problem)
                continue
            try:
                key, subject = signing_key(certificates, authority.roots, authority.revoked, at)
                return f"{authority.name}: {subject}", key
            except Untrusted as error:
                reasons.append(f"authority {authority.name!r}: {error}")
        raise Untrusted("; ".join(reasons) or "the trust file has no authority for certificates")


OFF = Trust.model_validate({"policy": "off"})


def read(path: Path | None) -> Trust:
    """Reads the trust file as it is now; None: nothing is asked of artifacts but their SHA-256.

    Raises SettingsError with all its problems.
    """
    if path is None:
        return OFF
    try:
        table = tomllib.loads(path.read_text())
    except OSError as error:
        raise SettingsError([f"trust file {path} can't be read: {error.strerror}"]) from error
    except ValueError as error:
        raise SettingsError([f"trust file {path} is not valid TOML: {error}"]) from error
    try:
        trust = Trust.model_validate(table, context=path.parent)
    except ValidationError as error:
        raise SettingsError([f"{path}: {one}" for one in described(error, Trust)]) from None
    if problems := list(_problems(trust)):
        raise SettingsError([f"{path}: {problem}" for problem in problems])
    return trust


def _problems(trust: Trust) -> Iterator[str]:
    names = [one.name for one in _signers(trust)]
    if len(set(names)) < len(names):
        yield "two keys or authorities have the same name"
    if trust.policy == "require" and not names:
        yield "policy is require, and there is no [[key]] and no [[authority]]: nothing would load"


def _signers(trust: Trust) -> Iterable[_Signer]:
    return (*trust.key, *trust.authority)
