"""OTLP receiver that discards traces: `python -m ops.bench.load.servers.otlp_sink`.

Answers each line of its standard input with its port and the number of requests so far.
"""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from ops.bench.harness.child_process import answer_lines


class _Sink(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    taken = 0

    def do_POST(self) -> None:
        """Counts a request and discards it."""
        self.rfile.read(int(self.headers["content-length"]))
        _Sink.taken += 1
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Logs nothing."""


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Sink)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    answer_lines(lambda _: {"port": server.server_port, "taken": _Sink.taken})
