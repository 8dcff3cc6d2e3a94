"""An nginx of the tests' own, on loopback."""

import shutil
import signal
import subprocess
from pathlib import Path

from tests.support.processes import start_server
from tests.support.wait import eventually

_CONFIGURATION = """\
daemon off;
master_process on;
worker_processes 1;
pid {folder}/pid;
error_log {folder}/error.log;
events {{ worker_connections 256; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/millrace.conf;
}}
"""


def installed() -> bool:
    return shutil.which("nginx") is not None


class Nginx:
    """Serves the configuration that it was given last."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "nginx.conf").write_text(_CONFIGURATION.format(folder=folder))
        self._process: subprocess.Popen[bytes] | None = None

    def serve(self, configuration: str) -> None:
        """Starts with a configuration, or changes to it; requests under way go on as they were."""
        (self._folder / "millrace.conf").write_text(configuration)
        command = self._command("-t")
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        if self._process is None:
            self._process = start_server(self._command(), self._folder, signal.SIGQUIT)
            eventually(self._workers)  # which start once the ports are open
        else:
            before = self._workers()
            self._process.send_signal(signal.SIGHUP)
            eventually(lambda: self._workers() - before)

    def close(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait()

    def _command(self, *arguments: str) -> list[str]:
        return [str(shutil.which("nginx")), "-p", str(self._folder), "-c", "nginx.conf", *arguments]

    def _workers(self) -> set[str]:
        assert self._process is not None
        pid = self._process.pid
        return set(Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
