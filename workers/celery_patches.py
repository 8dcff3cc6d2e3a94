"""All that relies on Celery's internals. It holds for one version, which importing this asserts."""

import logging
import warnings
from collections.abc import Callable
from typing import Any, ClassVar

import celery
from celery.apps import worker as celery_worker
from celery.exceptions import SecurityWarning
from celery.signals import setup_logging, worker_shutting_down
from celery.worker.components import Pool
from celery.worker.consumer import Consumer
from celery.worker.control import Panel
from celery.worker.state import maybe_shutdown
from kombu import Connection

PATCHED_VERSION = "5.6.3"
if celery.__version__ != PATCHED_VERSION:
    raise ImportError(
        f"workers/celery_patches.py is for Celery {PATCHED_VERSION}, not {celery.__version__}"
    )

_COMMANDS = ("ping", "stats")
_RETRY_S = 0.5  # between two attempts to reach a broker that is away

_log = logging.getLogger(__name__)


class NudgeConsumer(Consumer):  # type: ignore[misc]
    """Celery's consumer without the 28 exchanges and queues that it declares on RabbitMQ for
    delayed messages, and with a constant pause between attempts to connect: Celery's pauses grow to
    half a minute, and end after a hundred attempts."""

    class Blueprint(Consumer.Blueprint):  # type: ignore[misc]
        """Steps of the consumer, without delayed delivery."""

        default_steps: ClassVar[list[str]] = [
            step for step in Consumer.Blueprint.default_steps if ":DelayedDelivery" not in step
        ]

    def ensure_connected(self, connection: Connection) -> Connection:
        """Connects to the broker, for as long as it takes; logs each error once."""
        logged: list[str] = []

        def log_once(error: Exception, _: float) -> None:
            """Logs an error that hasn't been logged."""
            if str(error) not in logged:
                logged.append(str(error))
                _log.warning("the broker can't be reached: %s", error)

        return connection.ensure_connection(
            log_once,
            interval_start=_RETRY_S,
            interval_step=0,
            interval_max=_RETRY_S,
            callback=maybe_shutdown,
        )


def start_before_pool(step: type) -> None:
    """Starts a bootstep before Celery's pool of threads, and stops it after."""
    Pool.requires = (*Pool.requires, step)


def silence() -> None:
    """Leaves stdout and logging to the platform's own log."""
    celery_worker.safe_say = _ignore  # prints to stdout in another format
    setup_logging.connect(_ignore, weak=False)  # Celery sets up logging if nothing is connected
    # Celery warns of pickle where root runs a worker; the app accepts JSON alone.
    warnings.filterwarnings("ignore", category=SecurityWarning)


def answer_inspection_alone() -> None:
    """Refuses every remote command but ping and stats: others could stop a worker that has slices,
    or move its queue, behind the back of the platform."""
    Panel.data.update({name: _refuse for name in Panel.data if name not in _COMMANDS})


def on_shutdown(act: Callable[[], None]) -> None:
    """Calls `act` in the signal handler of SIGTERM or SIGINT."""
    worker_shutting_down.connect(lambda **_: act(), weak=False)


def wake_event_loop(worker: Any) -> None:
    """Wakes Celery's event loop, which would see a signal's flag only after its second is over."""
    worker.hub.call_soon(_ignore)


def stop_consuming(worker: Any, queue: str) -> None:
    """Stops to receive nudges, from any thread."""
    worker.hub.call_soon(worker.consumer.cancel_task_queue, queue)


def _refuse(*_: Any, **__: Any) -> dict[str, str]:
    """Answers a remote command."""
    return {
        "error": f"workers answer {' and '.join(_COMMANDS)} alone; `millrace workers` lists them, "
        "`millrace worker drain` stops one"
    }


def _ignore(*_: Any, **__: Any) -> None:
    """Does nothing."""
