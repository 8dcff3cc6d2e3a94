"""Accepting of connections, several in a turn of the event loop.

Why: libuv, on which uvloop stands, accepts one connection a turn from each of its handles. A loop
whose turns take 50 ms would take in 20 new clients a second: they waited for seconds, though their
calls took milliseconds. Further handles of the same socket accept one each.
"""

import asyncio
import os
import socket
from collections.abc import Callable
from ssl import SSLContext

ACCEPTED = 16
"""Connections that a turn accepts; each costs one that comes alone 2 µs more."""
BACKLOG = 65_535
"""Connections that wait to be accepted, as many as the kernel allows (net.core.somaxconn): what a
client sends beyond them is lost, and sent again a second later."""


async def listen_more(
    server: asyncio.Server, connection: Callable[[], asyncio.Protocol], ssl: SSLContext | None
) -> list[asyncio.Server]:
    """Returns further servers on the sockets of a server, which accept what it would."""
    loop = asyncio.get_running_loop()
    return [
        await loop.create_server(
            connection, sock=socket.socket(fileno=os.dup(one.fileno())), ssl=ssl, backlog=BACKLOG
        )
        for one in server.sockets
        for _ in range(ACCEPTED - 1)
    ]
