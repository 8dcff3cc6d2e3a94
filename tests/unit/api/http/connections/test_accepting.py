"""Several connections are accepted in a turn of the loop."""

import asyncio
import socket
from contextlib import ExitStack

import uvloop

from api.http.connections.accepting import ACCEPTED, BACKLOG, listen_more

_CLIENTS = 10 * ACCEPTED


def test_a_turn_of_the_loop_accepts_several_connections() -> None:
    made: list[asyncio.BaseTransport] = []

    class Connection(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            made.append(transport)

    async def turns() -> int:
        server = await asyncio.get_running_loop().create_server(
            Connection, "127.0.0.1", 0, backlog=BACKLOG
        )
        servers = [server, *await listen_more(server, Connection, None)]
        address, count = server.sockets[0].getsockname(), 0
        with ExitStack() as opened:
            for _ in range(_CLIENTS):
                opened.enter_context(socket.create_connection(address))
            while len(made) < _CLIENTS and count < _CLIENTS:
                count += 1
                await asyncio.sleep(0)
            for each in (*servers, *made):
                each.close()
        return count

    assert uvloop.run(turns()) < _CLIENTS / 4
    assert len(made) == _CLIENTS
