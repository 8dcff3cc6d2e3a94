"""/metrics of a process: as Prometheus reads it."""

import socket

from prometheus_client import start_http_server
from prometheus_client.exposition import choose_encoder

from jobs.settings import Settings, SettingsError
from jobs.telemetry.metrics.metrics import REGISTRY


def exposed(accept: str) -> tuple[bytes, str]:
    """All samples, and their media type: what the asker's Accept asks for."""
    encode, media_type = choose_encoder(accept)
    return encode(REGISTRY), media_type


def listen(settings: Settings) -> None:
    """A process's own /metrics, where a port is set. Raises SettingsError where it is taken."""
    if settings.metrics and settings.metrics_port:
        try:
            start_http_server(settings.metrics_port, settings.metrics_host, REGISTRY)
        except OSError as error:
            raise _taken(settings, error) from error


def check(settings: Settings) -> None:
    """Raises SettingsError where `listen` would, in a process that is started for this one."""
    if settings.metrics and settings.metrics_port:
        family = socket.AF_INET6 if ":" in settings.metrics_host else socket.AF_INET
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((settings.metrics_host, settings.metrics_port))
            except OSError as error:
                raise _taken(settings, error) from error


def url(settings: Settings) -> str:
    """Where it is."""
    host = settings.metrics_host
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.metrics_port}/metrics"


def _taken(settings: Settings, error: OSError) -> SettingsError:
    where = f"{settings.metrics_host}:{settings.metrics_port}"
    return SettingsError(
        [
            f"MILLRACE_METRICS_PORT: {where} can't be listened on ({error.strerror}); end what "
            "uses it, or set another port: each process on a machine needs its own"
        ]
    )
