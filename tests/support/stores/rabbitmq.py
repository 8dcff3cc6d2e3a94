"""A private RabbitMQ: its own node, ports, folders and cookie; nothing outlives the tests."""

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

from kombu import Connection

from ops.processes.ports import free_port
from tests.support.processes import start_server
from tests.support.wait import eventually

# Not the wrapper in /usr/sbin, which becomes another user and writes to /var.
SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
STARTED_WITHIN_S = 90  # it takes 5 s where nobody else is at work

# A broker with no patience: it ends the channel of a consumer that holds a message for a second.
_CONFIGURATION = """\
listeners.tcp.1 = 127.0.0.1:{port}
consumer_timeout = 1000
"""


def installed() -> bool:
    return SERVER.exists() and shutil.which("epmd") is not None


class Rabbit:
    """One node, which can be killed, stopped in its tracks, and started again where it was."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self.url = f"amqp://guest:guest@127.0.0.1:{self._port}//"
        config = folder / "rabbitmq.conf"
        config.write_text(_CONFIGURATION.format(port=self._port))
        plugins = folder / "plugins"
        plugins.write_text("[].")
        epmd_port = free_port()
        self._environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),  # of the Erlang cookie
            "ERL_EPMD_PORT": str(epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RUNNING_UNDER_SYSTEMD": "true",  # Erlang takes the place of the script
            "RABBITMQ_NODENAME": f"millrace{epmd_port}@localhost",
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_CONFIG_FILE": str(config),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(folder / "generated"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_LOGS": "-",
            # Channels are looked at every second, not every minute.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 2:2 -rabbit channel_tick_interval 1000",
        }
        # Erlang starts one by itself otherwise, for the machine and for ever.
        self._epmd = self._run(["epmd", "-port", str(epmd_port)])
        self._server: subprocess.Popen[bytes] | None = None

    def _run(self, command: list[str]) -> "subprocess.Popen[bytes]":
        where: Any = {"env": self._environ, "cwd": self._folder, "start_new_session": True}
        return start_server(command, self._folder, **where)

    def launch(self) -> None:
        """Returns at once."""
        self._server = self._run([str(SERVER)])

    def start(self) -> None:
        """Returns when it can be spoken to."""
        self.launch()
        eventually(self.answers, timeout_s=STARTED_WITHIN_S)

    def answers(self) -> bool:
        assert self._server is not None
        assert self._server.poll() is None, (self._folder / "output").read_text()[-3000:]
        try:
            with Connection(self.url, connect_timeout=1) as connection:
                connection.connect()
        except OSError:
            return False
        return True

    def signal(self, number: signal.Signals) -> None:
        assert self._server is not None
        self._server.send_signal(number)

    def kill(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.kill()
            server.wait()

    def close(self) -> None:
        self.kill()
        self._epmd.kill()
        self._epmd.wait()
