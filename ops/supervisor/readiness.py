"""Wait until the api of a platform is ready, which may last as long as its models may load."""

import http.client
import json
import logging
import ssl
from collections.abc import Callable
from contextlib import closing
from urllib.parse import urlsplit

import click

from jobs import clock
from jobs.errors import NoWorker
from jobs.models.watcher import ModelsFile
from jobs.settings import Settings
from ops.embedded import defaults

_POLL_S, _ANSWER_S = 0.05, 5.0
_WITHIN_S = 120.0  # for all but the loading of models
_TELL_S = 10.0

_log = logging.getLogger("millrace.processes")


class NotReady(click.ClickException):
    """Reports that the platform didn't become ready in time, with what it waited for."""


def await_ready(settings: Settings, poll: Callable[[], bool]) -> None:
    """Returns once `GET /readyz` is 200, or `poll` returns False. Raises NotReady.

    Says every ten seconds what is waited for. poll: called several times a second.
    """
    load_s, began_s = _longest_load_s(settings), clock.monotonic()
    tell_s = _TELL_S
    with closing(_connection(settings)) as api:
        while poll() and (reason := _unready(api)):
            waited_s = clock.monotonic() - began_s
            limit_s = _WITHIN_S + (load_s if reason.get("code") == NoWorker.code else 0.0)
            said = reason["detail"]
            if waited_s > limit_s:
                raise NotReady(f"not ready within {limit_s:.0f} s: {said}; see the log above")
            if waited_s >= tell_s:
                tell_s = waited_s + _TELL_S
                _log.info("not ready for %.0f of %.0f s: %s", waited_s, limit_s, said)
            clock.sleep(_POLL_S)


def _longest_load_s(settings: Settings) -> float:
    models = ModelsFile(settings.models).models
    return max((model.limits.max_load_s for model in models if not model.on_demand), default=0)


def _unready(api: http.client.HTTPConnection) -> dict[str, str] | None:
    """Returns the problem object of an api that isn't ready, at least its detail; None: it is."""
    try:
        api.request("GET", "/readyz")
        answer = api.getresponse()
        body = answer.read()
    except (OSError, http.client.HTTPException):
        api.close()
        return {"detail": "the api doesn't answer"}
    if answer.status == http.client.OK:
        return None
    try:
        return dict(json.loads(body))
    except ValueError:
        return {"detail": f"GET /readyz is {answer.status}"}


def _connection(settings: Settings) -> http.client.HTTPConnection:
    address = urlsplit(settings.url)
    host, port = str(address.hostname), address.port
    if address.scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=_ANSWER_S)
    context = _own_tls_context(settings)
    return http.client.HTTPSConnection(host, port, timeout=_ANSWER_S, context=context)


def _own_tls_context(settings: Settings) -> ssl.SSLContext:
    """TLS context for our own api: its certificate needn't have the address it listens on."""
    context = defaults.own_tls_context(settings)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
