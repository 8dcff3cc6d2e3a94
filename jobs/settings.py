"""Configuration: read once, from the environment or a TOML file, into one frozen object."""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from math import inf
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jobs.blobs import s3_locations, store
from jobs.encryption import MIN_KEY
from jobs.ssrf import AllowList

_PREFIX = "MILLRACE_"
_FILE = "_FILE"
"""Behind the name of a secret: its value is the content of that file."""
_SHOWN = {"host", "port", "db", "sslmode", "sslrootcert", "sslcert", "sslkey"} | {
    "target_session_attrs",
    "ssl_ca_certs",
    "ssl_certfile",
    "ssl_keyfile",
    "ssl_cert_reqs",
}
"""Parameters of an address that `millrace check` shows."""
_BOOLS = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


class SettingsError(Exception):
    """Every problem of the configuration at once."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def _setting(default: Any, help: str, *, secret: bool = False) -> Any:
    return field(default=default, metadata={"help": help, "secret": secret}, repr=not secret)


def default_home() -> Path:
    """Where the embedded services keep their data: XDG's data folder of this user."""
    base = os.environ.get("XDG_DATA_HOME") or os.path.join("~", ".local", "share")
    return Path(base).expanduser() / "millrace"


@dataclass(frozen=True, slots=True)
class Settings:
    """Each field is `MILLRACE_` and its name in capitals, in the environment or in the file that
    MILLRACE_CONFIG names; the environment wins."""

    home: Path = _setting(None, "data folder of the embedded services")
    host: str = _setting("127.0.0.1", "address the api listens on")
    port: int = _setting(8000, "port the api listens on")
    tls_cert: Path | None = _setting(None, "the api's certificate, with its chain (PEM): https")
    tls_key: Path | None = _setting(None, "the private key of that certificate (PEM)")
    tls_client_ca: Path | None = _setting(
        None, "clients must present a certificate of this CA (PEM)"
    )
    ca: Path | None = _setting(None, "the command line trusts this CA (PEM), not the system's")
    client_cert: Path | None = _setting(None, "certificate that the command line presents (PEM)")
    client_key: Path | None = _setting(None, "the private key of that certificate (PEM)")
    database_url: str = _setting("", "PostgreSQL 15 or later; empty: the embedded one", secret=True)
    redis_url: str = _setting("", "Redis 6.2 or later; empty: the embedded one", secret=True)
    broker_url: str = _setting(
        "", "broker of the nudges: redis:// or amqp:// (RabbitMQ); empty: the Redis", secret=True
    )
    models: Path | None = _setting(None, "models file (TOML); without one: the samples")
    blobs: str = _setting(
        "", "blob store: file:/path or s3://bucket/prefix; empty: payloads stay in the database"
    )
    blob_over_kb: int = _setting(64, "payloads longer than this go to the blob store, KiB")
    s3_endpoint: str = _setting("", "address of an S3 that is not Amazon's")
    s3_allow: str = _setting(
        "", "what jobs may read and write in S3 (a,b): bucket or bucket/prefix, with {tenant} in it"
    )
    oidc_issuer: str = _setting("", "identity provider whose tokens are taken: its URL")
    oidc_audience: str = _setting("", "what its tokens are for: their `aud`")
    oidc_jwks_url: str = _setting("", "its keys; empty: it says where they are itself")
    oidc_tenant_claim: str = _setting("tenant", "the claim that names the tenant")
    oidc_role_claim: str = _setting("role", "the claim that names the role; absent: tenant")
    oidc_client_id: str = _setting("", "the dashboard signs in at that provider as this client")
    oidc_client_secret: str = _setting("", "what it proves that by, if anything", secret=True)
    pool: str = _setting("default", "the pool that a worker belongs to")
    device: str = _setting("", "torch device of a worker; empty: CUDA where there is one")
    max_json_mb: int = _setting(64, "largest JSON body, MiB")
    max_ndjson_mb: int = _setting(8192, "largest NDJSON body, MiB")
    max_file_mb: int = _setting(8192, "largest file that is taken in, MiB")
    max_items: int = _setting(10_000_000, "most items in one job")
    slow_client_s: float = _setting(
        30.0, "a request's head, and the next bytes of its body, must come within this, seconds"
    )
    max_queued_calls: int = _setting(2000, "most calls waiting for one model version")
    require_idempotency_key: bool = _setting(False, "refuse jobs and calls without such a key")
    idempotency_hours: float = _setting(24.0, "a job's Idempotency-Key is remembered, hours")
    call_idempotency_s: float = _setting(
        3600.0, "a call's answer is kept in Redis under its Idempotency-Key, seconds"
    )
    await_workers: bool = _setting(False, "ready only once every model has a warm worker")
    worker_max_mb: int = _setting(0, "a worker that grows beyond this, MiB, is replaced; 0: never")
    memory_mb: int = _setting(0, "memory of a worker for its models, MiB; 0: all are loaded")
    min_stay_s: float = _setting(30.0, "a model stays so long before another may take its memory")
    secret_key: str = _setting(
        "", "encrypts stored secrets; empty: one made in the home, beside the embedded database",
        secret=True,
    )  # fmt: skip
    webhook_allow: str = _setting(
        "", "hosts and networks (a,b) for webhooks though private; plain http is fine there"
    )
    lease_s: float = _setting(6.0, "a worker's right to a slice, renewed three times within it")
    keeper_interval_s: float = _setting(1.0, "the keeper looks around at least this often")

    keep_items_days: float = _setting(0.0, "inputs of ended jobs are kept so long; 0: for ever")
    keep_results_days: float = _setting(0.0, "results of ended jobs are kept so long; 0: for ever")
    keep_jobs_days: float = _setting(0.0, "ended jobs and launches are kept so long; 0: for ever")

    metrics: bool = _setting(True, "processes keep metrics, and report them for `why`")
    metrics_window_s: float = _setting(60.0, "`why` and the dashboard look back so long, seconds")
    metrics_host: str = _setting("127.0.0.1", "address that /metrics of a process listens on")
    metrics_port: int = _setting(0, "port of a process's own /metrics; 0: none of its own")
    otlp_endpoint: str = _setting(
        "", "where traces are sent, OTLP over HTTP; empty: nowhere", secret=True
    )
    trace_share: float = _setting(0.01, "of requests without a traceparent, so many are traced")
    log_format: str = _setting("auto", "json, human, or auto: human on a terminal, json elsewhere")

    def __post_init__(self) -> None:
        object.__setattr__(self, "home", self.home or default_home())

    @property
    def broker(self) -> str:
        """Celery's broker; where none is named, the Redis. kombu has spellings of its own for a
        socket, and for TLS: without ssl_cert_reqs it would connect in the clear."""
        url = self.broker_url or self.redis_url
        if url.startswith("unix://"):
            return "redis+socket://" + url.removeprefix("unix://").partition("?")[0]
        if url.startswith("rediss://") and "ssl_cert_reqs=" not in url:
            return f"{url}{'&' if '?' in url else '?'}ssl_cert_reqs=required"
        return url

    @property
    def files(self) -> str:
        """Where files lie: in the blob store or, without one, in a folder of the home."""
        return self.blobs or f"file:{self.home.absolute() / 'files'}"

    @property
    def url(self) -> str:
        """Where the api is reached from this machine."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        scheme = "https" if self.tls_cert else "http"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port}"

    def evolve(self, **changes: Any) -> "Settings":
        return Settings(**{f.name: getattr(self, f.name) for f in fields(self)} | changes)

    def environment(self) -> dict[str, str]:
        """This configuration as environment variables, for a child process: all of them, so that
        nothing of ours shines through."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        named = {_PREFIX + k.upper(): "" if v is None else str(v) for k, v in values.items()}
        files = {_PREFIX + f.name.upper() + _FILE: "" for f in fields(self) if is_secret(f)}
        return named | files | {_PREFIX + "CONFIG": ""}


def _read_file(path: str, problems: list[str]) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            found = tomllib.load(file)
    except OSError as error:
        problems.append(f"MILLRACE_CONFIG: {path} can't be read: {error.strerror}")
        return {}
    except tomllib.TOMLDecodeError as error:
        problems.append(f"MILLRACE_CONFIG: {path} is not valid TOML: {error}")
        return {}
    known = {_PREFIX + f.name.upper() for f in fields(Settings)}
    known |= {_PREFIX + f.name.upper() + _FILE for f in fields(Settings) if is_secret(f)}
    problems += [
        f"{path}: {name} is not a setting; `millrace check` lists them all"
        for name in found
        if name not in known
    ]
    return found


def is_secret(setting: Any) -> bool:
    """Whether this field of Settings is one, or an address that may hold one."""
    return bool(setting.metadata["secret"])


def shown(url: str) -> str:
    """An address without what may be secret in it: a password, and parameters that nobody knows."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(set)"
    user, at, host = parts.netloc.rpartition("@")
    given = [parameter.partition("=") for parameter in filter(None, parts.query.split("&"))]
    known = [f"{name}={value if name in _SHOWN else '…'}" for name, _, value in given]
    query = "?" + "&".join(known) if known else ""
    return f"{parts.scheme}://{user.partition(':')[0]}{at}{host}{parts.path}{query}"


def _secret(name: str, given: Mapping[str, Any], problems: list[str]) -> Any:
    """A secret's value: given as it is, or as the path of a file that holds it alone."""
    value, path = given.get(name), given.get(name + _FILE)
    if path in (None, ""):
        return value
    if value not in (None, ""):
        problems.append(f"{name} and {name}{_FILE} are both set; one of them is enough")
        return None
    try:
        return Path(str(path)).expanduser().read_text().strip()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        problems.append(f"{name}{_FILE}: {path} can't be read: {why}")
        return None


def _tls(settings: Settings) -> list[str]:
    problems = []
    for cert, key in (("tls_cert", "tls_key"), ("client_cert", "client_key")):
        if (getattr(settings, cert) is None) != (getattr(settings, key) is None):
            names = f"{_PREFIX}{cert.upper()} and {_PREFIX}{key.upper()}"
            problems.append(f"{names} belong together: one is set, the other isn't")
    if settings.tls_client_ca and not settings.tls_cert:
        problems.append(
            "MILLRACE_TLS_CLIENT_CA asks clients for certificates: set MILLRACE_TLS_CERT and "
            "MILLRACE_TLS_KEY too"
        )
    for name in ("tls_cert", "tls_key", "tls_client_ca", "ca", "client_cert", "client_key"):
        path = getattr(settings, name)
        if path is not None and not (path.is_file() and os.access(path, os.R_OK)):
            problems.append(f"{_PREFIX}{name.upper()}: {path} is no file that can be read")
    return problems


def _convert(name: str, kind: Any, value: Any, problems: list[str]) -> Any:
    if kind is bool:
        if (word := str(value).lower()) not in _BOOLS:
            problems.append(f"{name} is {value!r}; it is true or false")
        return _BOOLS.get(word)
    try:
        return Path(value).expanduser() if "Path" in str(kind) else kind(value)
    except (TypeError, ValueError):
        problems.append(f"{name} is {value!r}, which is not a number")
        return None


def _retention(settings: Settings) -> list[str]:
    names = ("keep_items_days", "keep_results_days", "keep_jobs_days")
    ages = [getattr(settings, name) for name in names]
    problems = [
        f"{_PREFIX}{name.upper()} is {age}; it is days, 0 for ever"
        for name, age in zip(names, ages, strict=True)
        if not 0 <= age < inf
    ]
    *payloads, jobs = ages
    if not problems and jobs and not all(0 < age <= jobs for age in payloads):
        problems.append(
            f"MILLRACE_KEEP_JOBS_DAYS is {jobs}: a job goes last, so MILLRACE_KEEP_ITEMS_DAYS and "
            f"MILLRACE_KEEP_RESULTS_DAYS must be set too, and no longer than that"
        )
    return problems


def _oidc(settings: Settings) -> list[str]:
    if not settings.oidc_issuer:
        named = [
            name
            for name in ("audience", "jwks_url", "client_id")
            if getattr(settings, f"oidc_{name}")
        ]
        return [
            f"MILLRACE_OIDC_{name.upper()} is set, but not MILLRACE_OIDC_ISSUER" for name in named
        ]
    problems = [
        f"MILLRACE_OIDC_{name.upper()} must be set with MILLRACE_OIDC_ISSUER"
        for name in ("audience", "tenant_claim", "role_claim")
        if not getattr(settings, f"oidc_{name}")
    ]
    for name in ("issuer", "jwks_url"):
        url = getattr(settings, f"oidc_{name}")
        if url and not is_trusted_url(url):
            problems.append(
                f"MILLRACE_OIDC_{name.upper()} is {url!r}; it begins with https://, "
                "on loopback with http://"
            )
    return problems


def is_trusted_url(url: str) -> bool:
    """Whether what comes from there is its: in the clear it could be anybody's."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    schemes = {"https", "http"} if parts.hostname in LOOPBACK else {"https"}
    return parts.scheme in schemes and bool(parts.hostname)


def _ranges(settings: Settings) -> list[str]:
    problems = []
    if not 0 <= settings.port <= 65535:
        problems.append(f"MILLRACE_PORT is {settings.port}; a port is 0 to 65535")
    if settings.worker_max_mb < 0:
        problems.append("MILLRACE_WORKER_MAX_MB must be 0 or more")
    if settings.memory_mb < 0:
        problems.append("MILLRACE_MEMORY_MB must be 0 or more")
    if not 0 <= settings.min_stay_s < inf:
        problems.append("MILLRACE_MIN_STAY_S must be 0 or more")
    if not 1 <= settings.lease_s < inf:
        problems.append(f"MILLRACE_LEASE_S is {settings.lease_s}; a lease is 1 second or more")
    if not 0 < settings.keeper_interval_s < inf:
        problems.append("MILLRACE_KEEPER_INTERVAL_S must be more than 0")
    if not 0 <= settings.metrics_port <= 65535:
        problems.append(
            f"MILLRACE_METRICS_PORT is {settings.metrics_port}; a port is 1 to 65535, 0: none"
        )
    if not 0 <= settings.trace_share <= 1:
        problems.append(f"MILLRACE_TRACE_SHARE is {settings.trace_share}; it is 0 to 1")
    if settings.log_format not in ("auto", "json", "human"):
        problems.append(
            f"MILLRACE_LOG_FORMAT is {settings.log_format!r}; it is json, human or auto"
        )
    if settings.otlp_endpoint and urlsplit(settings.otlp_endpoint).scheme not in ("http", "https"):
        problems.append("MILLRACE_OTLP_ENDPOINT must be the http(s) address of an OTLP receiver")
    if not 0 < settings.slow_client_s < inf:
        problems.append("MILLRACE_SLOW_CLIENT_S must be more than 0")
    problems += _retention(settings)
    problems += _tls(settings)
    problems += [
        f"{_PREFIX}{name.upper()} must be a number more than 0"
        for name in ("idempotency_hours", "call_idempotency_s")
        if not 0 < getattr(settings, name) < inf
    ]
    problems += [
        f"{_PREFIX}{name.upper()} must be 1 or more"
        for name in (
            "max_json_mb",
            "max_ndjson_mb",
            "max_file_mb",
            "max_items",
            "max_queued_calls",
            "blob_over_kb",
        )
        if getattr(settings, name) < 1
    ]
    try:
        _ = settings.blobs and store.parse(settings.blobs)
    except ValueError as error:
        problems.append(f"MILLRACE_BLOBS: {error}")
    try:
        s3_locations.patterns(settings.s3_allow)
    except ValueError as error:
        problems.append(f"MILLRACE_S3_ALLOW: {error}")
    problems += _oidc(settings)
    if settings.secret_key and len(settings.secret_key) < MIN_KEY:
        problems.append(
            f"MILLRACE_SECRET_KEY must have {MIN_KEY} characters or more; `openssl rand -base64 32`"
            " makes one"
        )
    try:
        AllowList.parse(settings.webhook_allow)
    except ValueError as error:
        problems.append(f"MILLRACE_WEBHOOK_ALLOW: {error}")
    return problems


def _otlp_endpoint(environ: Mapping[str, str]) -> str:
    """What OpenTelemetry's own variables say, where MILLRACE_OTLP_ENDPOINT says nothing."""
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return ""
    base = environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "").rstrip("/")
    return environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or (base and f"{base}/v1/traces")


def load(environ: Mapping[str, str] | None = None) -> Settings:
    """Settings from the environment and the file it names.

    Raises SettingsError with every problem found.
    """
    environ = os.environ if environ is None else environ
    problems: list[str] = []
    config = environ.get(_PREFIX + "CONFIG")
    found = _read_file(config, problems) if config else {}
    given = {**found, **environ}
    values = {}
    for f in fields(Settings):
        name = _PREFIX + f.name.upper()
        value = _secret(name, given, problems) if is_secret(f) else given.get(name)
        if value not in (None, ""):
            values[f.name] = _convert(name, f.type, value, problems)
    values.setdefault("otlp_endpoint", _otlp_endpoint(environ))
    settings = Settings(**{name: value for name, value in values.items() if value is not None})
    if problems := problems + _ranges(settings):
        raise SettingsError(problems)
    return settings
