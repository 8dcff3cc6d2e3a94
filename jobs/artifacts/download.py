"""Downloads over HTTP of files whose SHA-256 is known, continued where an earlier one broke off."""

import http.client
import ssl
import urllib.request
from pathlib import Path
from urllib.error import HTTPError

from jobs.artifacts import progress
from jobs.artifacts.declared import Untrusted, verified

_CHUNK = 1 << 18
_PARTIAL, _NOT_SATISFIABLE = 206, 416


def download(
    url: str, part: Path, sha256: str, *, quiet_s: float, tls: ssl.SSLContext | None = None
) -> None:
    """Completes a file, which may have its beginning from an earlier download.

    The SHA-256 says whether both parts are of one file; where they aren't, it is downloaded again.
    A connection that breaks is made again as long as each brings something. quiet_s: longest time
    without a byte. Raises OSError, and keeps what there is; Untrusted for another file.
    """
    begun = _size(part)
    if begun and _is_complete(part, sha256):
        return
    _receive(url, part, quiet_s, tls)
    if begun and not _is_complete(part, sha256):
        part.unlink()  # its beginning was of another file, or what a host that went down left
        _receive(url, part, quiet_s, tls)
    try:
        verified(part, sha256)
    except Untrusted:
        part.unlink()
        raise


def _receive(url: str, part: Path, quiet_s: float, tls: ssl.SSLContext | None) -> None:
    while True:
        before = _size(part)
        try:
            return _append(url, part, quiet_s, tls)
        except HTTPError:
            raise
        except (OSError, http.client.HTTPException) as error:
            if _size(part) <= before:
                raise error if isinstance(error, OSError) else OSError(repr(error)) from error


def _append(url: str, part: Path, quiet_s: float, tls: ssl.SSLContext | None) -> None:
    """Writes what the file lacks. Raises OSError, HTTPException."""
    begun = _size(part)
    asked = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={begun}-"} if begun else {})
    try:
        answer = urllib.request.urlopen(
            urllib.request.Request(url, headers=asked), timeout=quiet_s, context=tls
        )
    except HTTPError as error:
        if begun and error.code == _NOT_SATISFIABLE:
            return  # as long as the file already, and not the same
        raise
    with answer, part.open("ab") as file:
        if answer.status != _PARTIAL:
            file.truncate(0)
        missing = int(answer.headers.get("Content-Length", 0))
        while chunk := answer.read1(_CHUNK):
            file.write(chunk)
            file.flush()  # for the next process, where this one is killed
            missing -= len(chunk)
            progress.report()
    if missing > 0:
        raise ConnectionError(f"{url} broke off, {missing} bytes before its end")


def _is_complete(part: Path, sha256: str) -> bool:
    try:
        verified(part, sha256)
    except Untrusted:
        return False
    return True


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0
