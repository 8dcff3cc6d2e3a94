"""Generates the synchronous client from the asynchronous one, by words: `python
ops/generate_sync_client.py`. A test tells where the files differ from what it would write."""

import re
import subprocess
import sys
from pathlib import Path

CLIENT = Path(__file__).parent / "top-level" / "millrace"
SOURCE, TARGET = CLIENT / "aio", CLIENT / "sync"

_HEADER = "# Generated from millrace.aio by ops/generate_sync_client.py; change it there.\n"
_WORDS = (
    (r"\bmillrace\.aio\b", "millrace.sync"),
    (r"\bAsyncGenerator\[(\w+), None\]", r"Generator[\1, None, None]"),
    (r"\basync (def|for|with)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\bAsync([A-Z]\w+)", r"\1"),
    (r"\basynccontextmanager\b", "contextmanager"),
    (r"__a(iter|next|enter|exit)__", r"__\1__"),
    (r"\banext\(", "next("),
    (r"\basync_sleep\b", "sleep"),
    (r"\ba(read|close)\(", r"\1("),
    (r"\baiter_bytes\b", "iter_bytes"),
    (r"\bshared by tasks\b", "shared by threads"),
    (r"Ctrl-C, or to the end of a cancelled task,", "Ctrl-C"),
)


def generated() -> dict[Path, str]:
    """Returns the text of each file of the synchronous client."""
    return {TARGET / path.name: _translated(path) for path in sorted(SOURCE.glob("*.py"))}


def _translated(path: Path) -> str:
    text = path.read_text()
    if path.name == "__init__.py":
        text = '"""Synchronous client, generated from the asynchronous one."""\n'
    for pattern, replacement in _WORDS:
        text = re.sub(pattern, replacement, text)
    return _formatted(_HEADER + text)


def _formatted(text: str) -> str:
    for command in (["check", "--fix-only", "--select", "I,F811"], ["format"]):
        text = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--quiet", "--stdin-filename",
             str(TARGET / "x.py"), "-"],
            input=text, stdout=subprocess.PIPE, text=True, check=True,
        ).stdout  # fmt: skip
    return text


if __name__ == "__main__":
    for path, text in generated().items():
        path.write_text(text)
