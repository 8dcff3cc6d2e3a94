"""Hosts of servers: which of several a new connection asks first, and which of them are silent.

psycopg asks in the order of the URL. One that is frozen costs each new connection the whole time to
connect, so the one that took the last connection comes first here, and one that fell silent last.
"""

import threading
from collections.abc import Mapping
from itertools import count
from typing import Any, TypeAlias

import psycopg
from psycopg import ConnectionInfo
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from jobs import clock

CONNECT_S = 5
"""Time for a host to take a connection, s."""

Address: TypeAlias = tuple[str, str]

_LISTS = ("host", "hostaddr", "port")
_ONE_IS_RIGHT = ("read-write", "primary")  # of `target_session_attrs`: the order chooses no other
_SILENT = -1

_ranks: dict[Address, int] = {}
_next_rank = count(1)


def in_turn(conninfo: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns options for psycopg: those of a URL, and others; its hosts in the order to ask in."""
    given = {**conninfo_to_dict(conninfo), **options}
    lists = {name: str(given[name]).split(",") for name in _LISTS if given.get(name)}
    hosts = lists.get("host") or lists.get("hostaddr") or []
    if len(hosts) < 2 or given.get("target_session_attrs") not in _ONE_IS_RIGHT:
        return given
    ports = lists.get("port", ["5432"])
    ports = [port or "5432" for port in (ports * len(hosts) if len(ports) == 1 else ports)]
    if len(ports) != len(hosts):
        return given  # psycopg says what is wrong
    ranks = [_ranks.get(address, 0) for address in zip(hosts, ports, strict=True)]
    order = sorted(range(len(hosts)), key=lambda n: -ranks[n])
    for name, values in lists.items():
        if len(values) > 1:
            given[name] = ",".join(values[n] for n in order)
    return given


def prefer(info: ConnectionInfo) -> None:
    """Lets connections begin with this host, which has just taken one."""
    _ranks[_address(info)] = next(_next_rank)


def avoid(info: ConnectionInfo) -> None:
    """Lets connections ask this host last, which has fallen silent."""
    _ranks[_address(info)] = _SILENT


def _address(info: ConnectionInfo) -> Address:
    return info.host, str(info.port)


class _Look:
    """The last look at a host."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.ended_s = 0.0  # monotonic
        self.answers = True


_looks: dict[Address, _Look] = {}


def answers(info: ConnectionInfo) -> bool:
    """Returns False where the host takes no connection within CONNECT_S, nor refuses one: it is
    frozen, or what is before it is stalled. Threads that ask at once share one look."""
    asked_s = clock.monotonic()
    look = _looks.setdefault(_address(info), _Look())
    with look.lock:
        if look.ended_s < asked_s:
            look.answers = _takes_connection(info)
            look.ended_s = clock.monotonic()
        return look.answers


def _takes_connection(info: ConnectionInfo) -> bool:
    began_s = clock.monotonic()
    own = {"password": info.password or None, "target_session_attrs": "any"}
    try:
        psycopg.connect(make_conninfo(info.dsn, **own, connect_timeout=CONNECT_S)).close()
    except psycopg.errors.ConnectionTimeout:
        return clock.monotonic() > began_s + 1.5 * CONNECT_S  # this process stood still, too
    except psycopg.Error:
        pass  # refused, by a server that lives or by the kernel in place of one that died
    return True
