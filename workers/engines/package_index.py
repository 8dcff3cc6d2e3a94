"""Files of a package index, as pip is told to use it, downloaded so that they can be continued."""

import ast
import html
import json
import re
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urldefrag, urljoin

from jobs.artifacts.download import download

_PYPI = "https://pypi.org/simple"
_ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"
_ANSWER_S = 20.0
_SETTING = re.compile(r"(?:global|download|:env:)\.([\w-]+)=(.+)")
#: What these ask for is left to pip.
_PIPS_OWN = {"proxy", "client-cert", "trusted-host", "no-index"}


def complete(package: str, sha256: str, part: Path, quiet_s: float) -> bool:
    """Downloads the file of a package (name==version) that has this SHA-256; goes on with its
    beginning, where that is there. quiet_s: longest time without a byte.

    Returns False where it is for pip to find. Raises OSError where its download broke off;
    Untrusted.
    """
    said = _settings()
    if _PIPS_OWN & said.keys():
        return False
    tls = ssl.create_default_context(cafile=said.get("cert"))
    try:
        url = _link(said.get("index-url", _PYPI), package.partition("==")[0], sha256, tls)
    except (OSError, ValueError):
        return False
    if not url:
        return False
    try:
        download(url, part, sha256, quiet_s=quiet_s, tls=tls)
    except HTTPError:
        return False
    return True


def _settings() -> Mapping[str, str]:
    """Returns pip's settings, by their names; those of the environment come last, and win."""
    command = [sys.executable, "-m", "pip", "config", "list", "--disable-pip-version-check"]
    said = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    lines = sorted(said.stdout.splitlines(), key=lambda line: line.startswith(":env:"))
    found = filter(None, map(_SETTING.fullmatch, lines))
    return {name: str(ast.literal_eval(value)) for name, value in (one.groups() for one in found)}


def _link(index: str, name: str, sha256: str, tls: ssl.SSLContext) -> str:
    """Returns the address of a file by the page of its package (PEP 503, PEP 691); "": not there.

    Raises OSError, ValueError.
    """
    request = urllib.request.Request(f"{index.rstrip('/')}/{name}/", headers={"Accept": _ACCEPT})
    with urllib.request.urlopen(request, timeout=_ANSWER_S, context=tls) as answer:
        page, base = answer.read(), answer.url
        is_json = "json" in answer.headers.get("Content-Type", "")
    links = _json_links(json.loads(page), sha256) if is_json else _html_links(page, sha256)
    return urldefrag(urljoin(base, links[0])).url if links else ""


def _json_links(page: Any, sha256: str) -> list[str]:
    return [file["url"] for file in page["files"] if file["hashes"].get("sha256") == sha256]


def _html_links(page: bytes, sha256: str) -> list[str]:
    links = re.findall(r"""href=["']([^"']+)["']""", page.decode(errors="replace"))
    return [html.unescape(link) for link in links if link.endswith(f"#sha256={sha256}")]
