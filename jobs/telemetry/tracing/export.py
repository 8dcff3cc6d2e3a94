"""Export of spans over OTLP."""

from jobs.settings import Settings
from jobs.telemetry.tracing.spans import set_receiver


def start(settings: Settings, process: str) -> None:
    """Starts the export if an endpoint is configured; `process`: api, worker or keeper."""
    if settings.otlp_endpoint:
        from jobs.telemetry.tracing.otlp import OtlpReceiver

        set_receiver(OtlpReceiver(settings.otlp_endpoint, process), settings.trace_share)
