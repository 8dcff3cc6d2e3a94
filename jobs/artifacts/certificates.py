"""Certificates of signing keys: verified offline, up to an authority of the trust file."""

from collections.abc import Collection, Sequence
from datetime import datetime

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID
from cryptography.x509.verification import (
    ExtensionPolicy,
    PolicyBuilder,
    Store,
    VerificationError,
)

from jobs.artifacts.bundle import CURVES, is_supported
from jobs.artifacts.declared import Untrusted


def signing_key(
    chain: Sequence[bytes],
    roots: list[x509.Certificate],
    revoked: Collection[str],
    at: datetime,
) -> tuple[ec.EllipticCurvePublicKey, str]:
    """Returns the key of the first certificate, and its subject. Raises Untrusted.

    chain: DER, that of the key first, then those that issued it. revoked: serial numbers,
    hexadecimal. at: all must be valid at this time; OpenSSF's own verifier takes expired ones.
    """
    try:
        leaf, *issuers = map(x509.load_der_x509_certificate, chain)
        subject = leaf.subject.rfc4514_string()
        serials = {one.serial_number for one in (leaf, *issuers)}
        key, usable = leaf.public_key(), _may_sign(leaf)
    except ValueError as error:
        raise Untrusted(f"a certificate can't be read: {error}") from error
    for serial in serials & {int(text, 16) for text in revoked}:
        raise Untrusted(f"the certificate {serial:x} of {subject!r} is revoked")
    if not usable:
        raise Untrusted(f"the certificate of {subject!r} is not for signatures")
    if not isinstance(key, ec.EllipticCurvePublicKey) or not is_supported(key):
        raise Untrusted(f"the key of {subject!r} is none of {CURVES}")
    if leaf not in roots:
        _check_chain(leaf, issuers, roots, at)
    elif not leaf.not_valid_before_utc <= at <= leaf.not_valid_after_utc:
        raise Untrusted(f"the certificate of {subject!r} is not valid now")
    return key, subject


def _check_chain(
    leaf: x509.Certificate,
    issuers: Sequence[x509.Certificate],
    roots: list[x509.Certificate],
    at: datetime,
) -> None:
    policy = (
        PolicyBuilder()
        .store(Store(roots))
        .time(at)
        .extension_policies(
            ca_policy=ExtensionPolicy.webpki_defaults_ca(), ee_policy=ExtensionPolicy.permit_all()
        )
    )
    try:
        policy.build_client_verifier().verify(leaf, list(issuers))
    except VerificationError as error:
        subject = leaf.subject.rfc4514_string()
        raise Untrusted(f"the certificate of {subject!r} is not trusted: {error}") from error


def _may_sign(certificate: x509.Certificate) -> bool:
    """Returns True if its extensions allow signatures."""
    extensions = certificate.extensions
    try:
        if extensions.get_extension_for_class(x509.KeyUsage).value.digital_signature:
            return True
    except x509.ExtensionNotFound:
        pass
    try:
        usage = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return False
    return ExtendedKeyUsageOID.CODE_SIGNING in usage
