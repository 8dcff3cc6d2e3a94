"""Commands that sign and verify artifacts: folders of models' files."""

from pathlib import Path

import click
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from jobs import settings
from jobs.artifacts import bundle, folder, trust
from jobs.artifacts.declared import Untrusted
from jobs.artifacts.manifest import Manifest
from jobs.artifacts.push import blob_key
from jobs.artifacts.trust import Trust
from jobs.blobs.store import open_store
from jobs.store.registry import artifacts
from ops.cli.admin_database import admin_transaction
from ops.cli.commands.common import as_json_option, show
from ops.embedded import defaults

_File = click.Path(exists=True, dir_okay=False, path_type=Path)
_Folder = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command(epilog="Example: millrace model sign model/ --key release.pem")
@click.argument("path", metavar="FOLDER", type=_Folder)
@click.option("--key", type=_File, required=True, help="Private key (PEM): P-256, P-384 or P-521.")
@click.option("--certificate", type=_File, help="Certificate of the key (PEM).")
@click.option("--chain", type=_File, help="Certificates that issued it (PEM).")
@click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), help="Default: FOLDER/model.sig."
)
@as_json_option
def sign(
    path: Path,
    key: Path,
    certificate: Path | None,
    chain: Path | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Signs every file of FOLDER in the format of OpenSSF Model Signing."""
    private = _private_key(key)
    certificates = [one for file in (certificate, chain) if file for one in _certificates(file)]
    if certificates and certificates[0].public_key() != private.public_key():
        raise click.ClickException(f"{certificate or chain} is not the certificate of {key}")
    manifest = _manifest(path)
    text = bundle.sign(manifest, path.resolve().name, private, certificates)
    target = output or path / folder.SIGNATURE
    target.write_text(text)
    show(
        {"digest": manifest.digest, "files": len(manifest.files), "signature": str(target)},
        [f"{manifest.digest}: {len(manifest.files)} files, signed in {target}"],
        as_json,
    )


@click.command(epilog="Example: millrace model verify model/ --trust trust.toml")
@click.argument("artifact", metavar="FOLDER|DIGEST")
@click.option("--trust", "trust_file", type=_File, help="Trust file; default: MILLRACE_TRUST.")
@click.option("--signature", type=_File, help="Of a folder; default: FOLDER/model.sig.")
@as_json_option
def verify(artifact: str, trust_file: Path | None, signature: Path | None, as_json: bool) -> None:
    """Verifies who signed a folder, or an artifact of the registry (sha256:…).

    Fails where no key of the trust file signed exactly these files, whatever its policy is.
    """
    trusted = trust.read(trust_file or settings.load().trust)
    if trusted is trust.OFF:
        raise click.UsageError("no keys are trusted: give --trust, or set MILLRACE_TRUST")
    if artifact.startswith("sha256:"):
        manifest, bundles = _registered(artifact)
    else:
        manifest, bundles = _manifest(Path(artifact)), _signatures(Path(artifact), signature)
    try:
        strict: Trust = trusted.model_copy(update={"policy": "require"})
        signer = strict.check(manifest, bundles)
    except Untrusted as error:
        raise click.ClickException(str(error)) from error
    files = len(manifest.files)
    show(
        {"digest": manifest.digest, "files": files, "key": signer},
        [f"{manifest.digest}: {files} files, signed by {signer}"],
        as_json,
    )


def _registered(digest: str) -> tuple[Manifest, list[str]]:
    """Returns the manifest and signatures of a pushed artifact, whose contents are all stored."""
    configured = defaults.load()
    with admin_transaction() as tx:
        row = artifacts.get(tx, digest)
        bundles = [one.bundle for one in artifacts.signatures_of(tx, digest)]
    if row is None:
        raise click.ClickException(f"the registry has no artifact {digest}")
    try:
        manifest = Manifest.from_json(row.manifest)
    except Untrusted as error:
        raise click.ClickException(str(error)) from error
    if manifest.digest != digest:
        raise click.ClickException(f"the registry's manifest has the digest {manifest.digest}")
    store = open_store(configured.files, configured.s3_endpoint)
    for file in manifest.files:
        if store.size(blob_key(file.sha256)) != file.size:
            raise click.ClickException(f"{file.path} is not in the blob store as it was pushed")
    return manifest, bundles


def _manifest(path: Path) -> Manifest:
    try:
        return folder.read(path)
    except Untrusted as error:
        raise click.ClickException(str(error)) from error


def _signatures(path: Path, signature: Path | None) -> list[str]:
    file = signature or path / folder.SIGNATURE
    try:
        return [file.read_text()]
    except (OSError, UnicodeDecodeError) as error:
        raise click.ClickException(f"{file} can't be read: {error}") from error


def _private_key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = load_pem_private_key(path.read_bytes(), None)
    except (TypeError, ValueError) as error:
        raise click.ClickException(f"{path} holds no private key (PEM, unencrypted)") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not bundle.is_supported(key.public_key()):
        raise click.ClickException(f"the key of {path} is none of {bundle.CURVES}")
    return key


def _certificates(path: Path) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(path.read_bytes())
    except ValueError as error:
        raise click.ClickException(f"{path} holds no certificates (PEM)") from error
