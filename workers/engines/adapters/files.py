"""Files of adapters: read from a folder, or from S3 into a cache, if they are the declared ones."""

import shutil
from hashlib import sha256
from pathlib import Path

from jobs import settings
from jobs.artifacts.scratch import scratch, sweep
from jobs.errors import BlobStoreUnavailable, Untransferable
from jobs.models.adapters import CONFIG, WEIGHTS, Adapter, LoraConfig, RefusedAdapter, read_config
from workers.engines.protocol import Permanent, Transient


def read(adapter: Adapter) -> tuple[LoraConfig, bytes]:
    """Returns configuration and weights (safetensors) of an adapter. Raises Permanent where they
    can't be used, Transient where S3 can't be reached."""
    if isinstance(adapter, RefusedAdapter):
        kind = Transient if adapter.transient else Permanent
        raise kind(f"adapter {adapter.name}: {adapter.problem}")
    try:
        folder = _fetched(adapter) if adapter.is_remote else Path(adapter.path)
        if adapter.config_sha256:
            _declared(folder / CONFIG, adapter.config_sha256)
        weights = _declared(folder / WEIGHTS, adapter.sha256)
        return read_config(folder), weights
    except ValueError as error:
        raise Permanent(f"adapter {adapter.name}: {error}") from error


def _declared(path: Path, expected: str) -> bytes:
    """Reads a file once: what is hashed is what is used. Raises ValueError."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path} can't be read: {error.strerror}") from error
    if (actual := sha256(content).hexdigest()) != expected.lower():
        raise ValueError(
            f"{path} is not the file that was declared: its SHA-256 is {actual}, not {expected}; "
            "install it again, or declare the new one under another name"
        )
    return content


def _fetched(adapter: Adapter) -> Path:
    """Returns a folder with a copy of an adapter's files in S3. Raises ValueError, Transient."""
    from jobs.blobs import s3_locations  # boto3 takes a good part of a second
    from jobs.blobs.objects import Objects

    configured = settings.load()
    cache = configured.home / "adapters"
    made = cache / f"{adapter.name}-{adapter.sha256.lower()}-{adapter.config_sha256.lower()}"
    sweep(cache)
    if made.is_dir():
        return made
    store = Objects(configured.s3_endpoint)
    try:
        with scratch(cache, made.name) as folder:
            if made.is_dir():  # another process was faster
                return made
            copied = folder / "copied"
            copied.mkdir()
            for name in (CONFIG, WEIGHTS):
                place = s3_locations.parse(f"{adapter.path.rstrip('/')}/{name}")
                with store.open(place) as source, (copied / name).open("wb") as target:
                    shutil.copyfileobj(source, target)
            _declared(copied / WEIGHTS, adapter.sha256)
            copied.rename(made)
    except Untransferable as error:
        raise ValueError(error.detail) from error
    except BlobStoreUnavailable as error:
        raise Transient(f"adapter {adapter.name}: {error.detail}") from error
    return made
