"""Endpoint /metrics of a process, in Prometheus' formats.

A supervisor checks ports and knows addresses without loading the metrics.
"""

import socket

from jobs.settings import Settings, SettingsError


def render(accept: str) -> tuple[bytes, str]:
    """Returns all samples and their media type, negotiated from an Accept header."""
    from prometheus_client.exposition import choose_encoder

    from jobs.telemetry.metrics.metrics import REGISTRY

    encode, media_type = choose_encoder(accept)
    return encode(REGISTRY), media_type


def serve(settings: Settings) -> None:
    """Serves /metrics if a port is set. Raises SettingsError where the port is taken."""
    if settings.metrics and settings.metrics_port:
        from prometheus_client import start_http_server

        from jobs.telemetry.metrics.metrics import REGISTRY

        try:
            start_http_server(settings.metrics_port, settings.metrics_host, REGISTRY)
        except OSError as error:
            raise _taken(settings, error) from error


def check_port(settings: Settings) -> None:
    """Raises SettingsError where `serve` would, before the process is started."""
    if settings.metrics and settings.metrics_port:
        family = socket.AF_INET6 if ":" in settings.metrics_host else socket.AF_INET
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((settings.metrics_host, settings.metrics_port))
            except OSError as error:
                raise _taken(settings, error) from error


def url(settings: Settings) -> str:
    """Returns the address of the endpoint."""
    host = settings.metrics_host
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.metrics_port}/metrics"


def _taken(settings: Settings, error: OSError) -> SettingsError:
    address = f"{settings.metrics_host}:{settings.metrics_port}"
    return SettingsError(
        [
            f"MILLRACE_METRICS_PORT: can't listen on {address} ({error.strerror}); stop the "
            "process that uses it, or set another port: each process of a machine needs its own"
        ]
    )
