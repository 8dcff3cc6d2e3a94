"""Starts the export of spans over OTLP, where an endpoint is configured."""

from jobs.settings import Settings
from jobs.telemetry.tracing.spans import send_to


def start(settings: Settings, process: str) -> None:
    """process: what kind of one this is."""
    if settings.otlp_endpoint:
        from jobs.telemetry.tracing.otlp import OtlpReceiver

        send_to(OtlpReceiver(settings.otlp_endpoint, process), settings.trace_share)
