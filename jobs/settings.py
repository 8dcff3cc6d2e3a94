"""Configuration: read once, from the environment or a TOML file, into one frozen object."""

import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from jobs.blobs import s3_locations, store
from jobs.problems import described, fits
from jobs.security import encryption
from jobs.security.ssrf import AllowList
from jobs.states import API_POOL

_CONFIG = "MILLRACE_CONFIG"
_FILE = "_FILE"  # after the name of a secret: the path of a file that holds its value
_SHOWN = {
    "host", "port", "db", "sslmode", "sslrootcert", "sslcert", "sslkey", "target_session_attrs",
    "ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs",
}  # fmt: skip
"""Parameters of an address that `millrace check` shows."""
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


class SettingsError(Exception):
    """Every problem of the configuration at once."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def _field(default: Any, help: str) -> Any:
    return Field(default, description=help)


def default_home() -> Path:
    """Data folder of the embedded services: below XDG's data folder of this user."""
    base = os.environ.get("XDG_DATA_HOME") or os.path.join("~", ".local", "share")
    return Path(base).expanduser() / "millrace"


def is_trusted_url(url: str) -> bool:
    """Returns True for https://, and for http:// on loopback: nobody can forge its answers."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    schemes = {"https", "http"} if parts.hostname in LOOPBACK else {"https"}
    return parts.scheme in schemes and bool(parts.hostname)


def _is_http(url: str) -> bool:
    return urlsplit(url).scheme in ("http", "https")


def _readable(path: Path) -> Path:
    path = path.expanduser()
    if not (path.is_file() and os.access(path, os.R_OK)):
        raise ValueError(f"{path} is no file that can be read")
    return path


def _text(test: Callable[[str], object], expected: str = "") -> AfterValidator:
    """Validates a text that is not empty; the test may raise ValueError itself."""
    return fits(lambda text: not text or test(text) is not False, expected)


def _variable(name: str) -> str:
    return f"MILLRACE_{name.upper()}"


_Secret = Annotated[str, Field(repr=False)]  # a secret, or an address that may hold one
_File = Annotated[Path, AfterValidator(Path.expanduser)]
_Pem = Annotated[Path, AfterValidator(_readable)]
_Port = Annotated[int, Field(ge=0, le=65535)]
_Count = Annotated[int, Field(ge=1)]
_Whole = Annotated[int, Field(ge=0)]  # 0: no bound, or none
_Above0 = Annotated[float, Field(gt=0, allow_inf_nan=False)]  # seconds or hours
_From0 = Annotated[float, Field(ge=0, allow_inf_nan=False)]  # seconds or days
_LONG_KEY = (
    f"{encryption.MIN_KEY} characters or more, and so must each of several keys, one a line; "
    "`openssl rand -base64 32` makes one"
)
_From1 = Annotated[float, Field(ge=1, allow_inf_nan=False)]  # seconds
_Share = Annotated[float, Field(ge=0, le=1)]
_HttpUrl = Annotated[str, _text(_is_http, "an http(s) address")]
_Pool = Annotated[str, _text(API_POOL.__ne__, "another name: that pool is of the api processes")]
_Hosts = Annotated[str, _text(AllowList.parse)]
_TrustedUrl = Annotated[str, _text(is_trusted_url, "https://…, or http://… on loopback")]


class Settings(BaseModel, frozen=True, extra="forbid", coerce_numbers_to_str=True):
    """Configuration of all processes.

    Each field is `MILLRACE_` and its name in capitals, in the environment or in the file that
    MILLRACE_CONFIG names; the environment wins.
    """

    model_config = ConfigDict(alias_generator=_variable, validate_by_name=True)

    home: _File = Field(
        default_factory=default_home, description="data folder of the embedded services"
    )
    host: str = _field("127.0.0.1", "address the api listens on")
    port: _Port = _field(8000, "port the api listens on")
    share_port: bool = _field(False, "share that port with other apis of the machine")
    tls_cert: _Pem | None = _field(None, "the api's certificate, with its chain (PEM): https")
    tls_key: _Pem | None = _field(None, "the private key of that certificate (PEM)")
    tls_client_ca: _Pem | None = _field(None, "CA whose certificates clients must present (PEM)")
    ca: _Pem | None = _field(None, "CA that the command line trusts, not the system's (PEM)")
    client_cert: _Pem | None = _field(None, "certificate that the command line presents (PEM)")
    client_key: _Pem | None = _field(None, "the private key of that certificate (PEM)")
    database_url: _Secret = _field("", "PostgreSQL 15 or later; empty: the embedded one")
    redis_url: _Secret = _field(
        "", "Redis 6.2+, redis+sentinel://host,…/NAME/DB or redis+cluster://host,…; empty: embedded"
    )
    broker_url: _Secret = _field(
        "", "broker of the nudges: redis:// or amqp:// (RabbitMQ); empty: Redis"
    )
    models: _File | None = _field(None, "models file (TOML); empty: the sample models")
    trust: _File | None = _field(
        None, "trust file (TOML): keys that sign artifacts; empty: no signature is asked for"
    )
    blobs: Annotated[str, _text(store.parse)] = _field(
        "", "blob store: file:/path or s3://bucket/prefix; empty: payloads stay in the database"
    )
    artifacts: _File | None = _field(
        None, "cache of artifacts on this host; empty: a folder of the home"
    )
    artifacts_mb: _Whole = _field(0, "most disk for that cache, MiB; 0: no bound")
    blob_over_kb: _Count = _field(64, "size above which a payload goes to the blob store, KiB")
    s3_endpoint: str = _field("", "address of an S3-compatible store that is not Amazon's")
    s3_allow: Annotated[str, _text(s3_locations.patterns)] = _field(
        "", "S3 buckets that jobs may use (a,b): bucket or bucket/prefix, {tenant} in it"
    )
    oidc_issuer: _TrustedUrl = _field("", "URL of the identity provider whose tokens are accepted")
    oidc_audience: str = _field("", "audience (`aud`) that its tokens must name")
    oidc_jwks_url: _TrustedUrl = _field("", "URL of its keys; empty: found by OpenID discovery")
    oidc_tenant_claim: str = _field("tenant", "claim that names the tenant")
    oidc_role_claim: str = _field("role", "claim that names the role; without it: tenant")
    oidc_client_id: str = _field("", "client id of the dashboard at that provider")
    oidc_client_secret: _Secret = _field("", "client secret of the dashboard, where it has one")
    pool: _Pool = _field("default", "pool that a worker belongs to")
    price: Annotated[float, Field(gt=0)] = _field(
        1.0, "price of a worker's device per hour, in any unit that all workers share"
    )
    spot_notice_s: _From0 = _field(0.0, "notice before a worker's machine goes, seconds; 0: never")
    spot_file: _File | None = _field(None, "file whose appearance is that notice")
    spot_provider: Literal["", "aws", "gcp", "azure"] = _field("", "provider that gives it")
    spot_metadata_url: _HttpUrl = _field("", "its metadata service; empty: the link-local address")
    device: str = _field("", "torch device of a worker, or UUID (GPU-…, MIG-…); empty: CUDA if any")
    max_json_mb: _Count = _field(64, "largest JSON body, MiB")
    max_ndjson_mb: _Count = _field(8192, "largest NDJSON body, MiB")
    max_file_mb: _Count = _field(8192, "largest uploaded file, MiB")
    min_free_mb: _Whole = _field(
        256, "free disk space below which no jobs and files are taken in, MiB; 0: none"
    )
    max_items: _Count = _field(10_000_000, "most items in one job")
    max_spool_mb: _Count = _field(16_384, "most disk for the items of a job being read, MiB")
    child_max_mb: _Count = _field(
        1024, "memory at which a child process of an api or keeper is ended, MiB"
    )
    max_bodies_mb: _Count = _field(
        512, "most memory for bodies of calls over 64 KiB in one api process, MiB"
    )
    slow_client_s: _Above0 = _field(
        30.0, "timeout for a request's head, and for the next bytes of its body, seconds"
    )
    cors_origins: str = _field("", "origins (https://a,https://b) of pages that call; *: any")
    inference_model: str = _field("", "model that answers POST /api/inference; empty: it is off")
    max_queued_calls: _Count = _field(2000, "most calls waiting for one model version")
    max_streams: _Count = _field(500, "most open streams of a tenant in one api process")
    require_idempotency_key: bool = _field(False, "refuse work without an Idempotency-Key")
    idempotency_hours: _Above0 = _field(24.0, "retention of a job's Idempotency-Key, hours")
    call_idempotency_s: _Above0 = _field(
        3600.0, "retention of a call's response under its Idempotency-Key in Redis, seconds"
    )
    await_workers: bool = _field(False, "ready only once every model has a warm worker")
    worker_max_mb: _Whole = _field(0, "memory at which a worker is replaced, MiB; 0: never")
    memory_mb: _Whole = _field(0, "memory of a worker for its models, MiB; 0: all are loaded")
    min_stay_s: _From0 = _field(30.0, "least time that a model stays loaded, seconds")
    secret_key: Annotated[_Secret, _text(encryption.are_long, _LONG_KEY)] = _field(
        "",
        "key that encrypts stored secrets; below it, one a line, older keys that only decrypt; "
        "empty: generated, with the embedded database only",
    )
    webhook_allow: _Hosts = _field(
        "", "private hosts and networks (a,b) that webhooks may reach, by plain http too"
    )
    fetch_allow: _Hosts = _field("", "private hosts and networks (a,b) that inputs come from")
    fetch_max_mb: _Count = _field(32, "largest input that is fetched from an address, MiB")
    fetch_timeout_s: _Above0 = _field(15.0, "time in which an input must have come, seconds")
    prepare_ahead_mb: _Count = _field(256, "prepared inputs of a model that may wait, about, MiB")
    lease_s: _From1 = _field(6.0, "lease on a slice, seconds; renewed three times within it")
    drain_s: _Above0 = _field(
        20.0, "time of a worker to end launches after SIGTERM, seconds; 10 s later it is killed"
    )
    keeper_interval_s: _Above0 = _field(1.0, "longest time between rounds of the keeper, seconds")
    cheaper_s: _From0 = _field(
        300.0,
        "time after its submission in which cheaper workers must be done with a standard job, for "
        "dearer ones to leave it to them, seconds; bulk: twelve times that; 0: none leaves any",
    )
    scale_command: str = _field(
        "", "program that sets the workers of a pool, run with the pool and the number (keeper)"
    )
    scale_workloads: str = _field(
        "", "workloads of pools (a,b): pool=namespace/deployment/name, or statefulset (scaler)"
    )
    scale_pod_costs: bool = _field(
        False, "choose the pods that go first; needs the right to patch pods (scaler)"
    )
    keep_items_days: _From0 = _field(0.0, "retention of inputs of ended jobs, days; 0: for ever")
    keep_results_days: _From0 = _field(0.0, "retention of results of ended jobs, days; 0: for ever")
    keep_responses_days: _Above0 = _field(
        30.0, "retention of stored responses, of their jobs, and of conversations, days"
    )
    keep_artifacts_days: _From0 = _field(
        30.0, "retention of the files of retired versions of models, days; 0: for ever"
    )
    keep_jobs_days: _From0 = _field(0.0, "retention of ended jobs and launches, days; 0: for ever")
    metrics: bool = _field(True, "collect metrics, and report them for `why`")
    metrics_window_s: float = _field(60.0, "time that `why` and the dashboard look back, seconds")
    metrics_host: str = _field("127.0.0.1", "address of a process's own /metrics")
    metrics_port: _Port = _field(0, "port of a process's own /metrics; 0: none")
    otlp_endpoint: Annotated[
        _Secret, _text(_is_http, "the http(s) address of an OTLP receiver")
    ] = _field("", "address that traces are sent to, OTLP over HTTP; empty: no traces")
    trace_share: _Share = _field(0.01, "share of requests without a traceparent that are traced")
    log_lines: _Whole = _field(1000, "last lines of each worker's log in Redis; 0: none")
    log_format: Literal["auto", "json", "human"] = _field(
        "auto", "json, human, or auto: human on a terminal, json elsewhere"
    )

    @property
    def broker(self) -> str:
        """Address of Celery's broker: Redis, where no other is named."""
        # kombu spells sockets its own way, and connects in the clear without ssl_cert_reqs.
        url = self.broker_url or self.redis_url
        if url.startswith("unix://"):
            return "redis+socket://" + url.removeprefix("unix://").partition("?")[0]
        if url.startswith("rediss://") and "ssl_cert_reqs=" not in url:
            return f"{url}{'&' if '?' in url else '?'}ssl_cert_reqs=required"
        return url

    @property
    def files(self) -> str:
        """Address of the store of files: the blob store or, without one, a folder of the home."""
        return self.blobs or f"file:{self.home.absolute() / 'files'}"

    @property
    def url(self) -> str:
        """Address of the api for clients on this machine."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        scheme = "https" if self.tls_cert else "http"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port}"

    def evolve(self, **changes: Any) -> "Settings":
        """Returns a copy with these fields changed. Raises ValidationError for a wrong value."""
        return Settings(**{**dict(self), **changes})

    def environment(self) -> dict[str, str]:
        """Returns all settings as environment variables, so that a child inherits no others."""
        values = {_variable(name): "" if value is None else str(value) for name, value in self}
        return values | {name + _FILE: "" for name in _secrets()} | {_CONFIG: ""}


def _variables() -> list[str]:
    return [_variable(name) for name in Settings.model_fields]


def _secrets() -> list[str]:
    return [_variable(name) for name, field in Settings.model_fields.items() if is_secret(field)]


def is_secret(field: FieldInfo) -> bool:
    """Returns True for a field of Settings that is a secret, or an address that may hold one."""
    return not field.repr


def redacted(url: str) -> str:
    """Returns an address without its password and without parameters that may be secret."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(set)"
    user, at, host = parts.netloc.rpartition("@")
    given = [parameter.partition("=") for parameter in filter(None, parts.query.split("&"))]
    known = [f"{name}={value if name in _SHOWN else '…'}" for name, _, value in given]
    query = "?" + "&".join(known) if known else ""
    return f"{parts.scheme}://{user.partition(':')[0]}{at}{host}{parts.path}{query}"


def load(environ: Mapping[str, str] | None = None) -> Settings:
    """Reads the settings from the environment and the file that it names.

    Raises SettingsError with every problem found.
    """
    environ = os.environ if environ is None else environ
    problems: list[str] = []
    config = environ.get(_CONFIG)
    given = {**(_read_file(config, problems) if config else {}), **environ}
    given = {name: value for name, value in given.items() if value not in (None, "")}
    for name in _secrets():
        _read_secret(name, given, problems)
    values = {name: given[name] for name in _variables() if name in given}
    values.setdefault(_variable("otlp_endpoint"), _otlp_endpoint(environ))
    wrong = set()
    try:
        settings = Settings(**values)
    except ValidationError as error:
        problems += described(error, Settings)
        wrong = {detail["loc"][0] for detail in error.errors()}
        settings = Settings(**{name: values[name] for name in values.keys() - wrong})
    # A setting that is wrong by itself is named once.
    problems += [no for no in _conflicts(settings) if not any(str(name) in no for name in wrong)]
    if problems:
        raise SettingsError(problems)
    return settings


def _read_file(path: str, problems: list[str]) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            content = tomllib.load(file)
    except OSError as error:
        problems.append(f"{_CONFIG}: {path} can't be read: {error.strerror}")
        return {}
    except tomllib.TOMLDecodeError as error:
        problems.append(f"{_CONFIG}: {path} is not valid TOML: {error}")
        return {}
    known = {*_variables(), *(name + _FILE for name in _secrets())}
    problems += [
        f"{path}: {name} is not a setting; `millrace check` lists them all"
        for name in content
        if name not in known
    ]
    return content


def _read_secret(name: str, given: dict[str, Any], problems: list[str]) -> None:
    """Adds the value of a secret that is given as the path of a file that holds it alone."""
    if (path := given.get(name + _FILE)) is None:
        return
    if name in given:
        problems.append(f"{name} and {name}{_FILE} are both set; one of them is enough")
        return
    try:
        given[name] = Path(str(path)).expanduser().read_text().strip()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        problems.append(f"{name}{_FILE}: {path} can't be read: {why}")


def _otlp_endpoint(environ: Mapping[str, str]) -> str:
    """Returns the endpoint that OpenTelemetry's own variables name."""
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return ""
    base = environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "").rstrip("/")
    return environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or (base and f"{base}/v1/traces")


def _conflicts(settings: Settings) -> Iterator[str]:
    """Yields conflicts between settings."""
    for cert, key in (("tls_cert", "tls_key"), ("client_cert", "client_key")):
        if (getattr(settings, cert) is None) != (getattr(settings, key) is None):
            names = f"{_variable(cert)} and {_variable(key)}"
            yield f"{names} belong together: one is set, the other isn't"
    if settings.tls_client_ca and not settings.tls_cert:
        yield (
            "MILLRACE_TLS_CLIENT_CA asks clients for certificates: set MILLRACE_TLS_CERT and "
            "MILLRACE_TLS_KEY too"
        )
    if settings.broker.partition("://")[0].endswith("+cluster"):
        yield (
            "MILLRACE_BROKER_URL must be a single Redis or RabbitMQ where MILLRACE_REDIS_URL is a "
            "Redis Cluster: Celery can't send nudges through one"
        )
    jobs, payloads = settings.keep_jobs_days, (settings.keep_items_days, settings.keep_results_days)
    if jobs and not all(0 < age <= jobs for age in payloads):
        yield (
            f"MILLRACE_KEEP_JOBS_DAYS is {jobs}: a job is deleted last, so "
            "MILLRACE_KEEP_ITEMS_DAYS and MILLRACE_KEEP_RESULTS_DAYS must be set too, and no longer"
        )
    for name in ("spot_file", "spot_provider"):
        if getattr(settings, name) and not settings.spot_notice_s:
            yield f"{_variable(name)} is set, but not MILLRACE_SPOT_NOTICE_S: no worker is spot"
    if settings.spot_metadata_url and not settings.spot_provider:
        yield "MILLRACE_SPOT_METADATA_URL is set, but not MILLRACE_SPOT_PROVIDER"
    for name in ("oidc_audience", "oidc_jwks_url", "oidc_client_id"):
        if getattr(settings, name) and not settings.oidc_issuer:
            yield f"{_variable(name)} is set, but not MILLRACE_OIDC_ISSUER"
    for name in ("oidc_audience", "oidc_tenant_claim", "oidc_role_claim"):
        if settings.oidc_issuer and not getattr(settings, name):
            yield f"{_variable(name)} must be set with MILLRACE_OIDC_ISSUER"
