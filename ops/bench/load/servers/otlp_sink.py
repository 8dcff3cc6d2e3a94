"""A receiver of traces that throws them away: `python -m
ops.bench.load.servers.otlp_sink`. Asked anything, it
answers with its port and how many requests it has had."""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class _Sink(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    taken = 0

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        _Sink.taken += 1
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def _main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Sink)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for _ in sys.stdin:
        print(json.dumps({"port": server.server_port, "taken": _Sink.taken}), flush=True)


if __name__ == "__main__":
    _main()
