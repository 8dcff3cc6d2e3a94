"""Server of files that breaks off, or stands still, where a test says."""

import re
from http.server import BaseHTTPRequestHandler

from tests.support.servers.receiver import HttpServer, Received, Reply


class FileServer(HttpServer):
    """files: contents by path, of a page where it ends with a slash. ranges: parts are sent as they
    are asked for. cuts: after how many bytes the next files break off. stands_still: they stand
    still there instead. asked: what was asked for, with the range."""

    def __init__(self, files: dict[str, bytes], *, ranges: bool = True) -> None:
        super().__init__()
        self.files, self.ranges = files, ranges
        self.cuts: list[int] = []
        self.stands_still = False
        self.asked: list[tuple[str, str]] = []

    def respond(self, request: Received) -> Reply:
        asked = request.headers.get("range", "")
        self.asked.append((request.path, asked))
        if (body := self.files.get(request.path)) is None:
            return Reply(404)
        if not (self.ranges and (found := re.fullmatch(r"bytes=(\d+)-", asked))):
            return Reply(200, body=body)
        begun = int(found[1])
        return Reply(206, body=body[begun:]) if begun < len(body) else Reply(416)

    def send_body(self, handler: BaseHTTPRequestHandler, answer: Reply) -> None:
        if not self.cuts or answer.status >= 400 or handler.path.endswith("/"):
            return super().send_body(handler, answer)
        handler.wfile.write(answer.body[: self.cuts.pop(0)])
        if self.stands_still:
            self.over.wait()
        handler.close_connection = True
        return None
