"""A call as code: in a shell, and with the Python client."""

import pprint
import shlex
from collections.abc import Mapping
from typing import Any

import orjson

from api.dashboard.forms.examples import IMAGE

_WIDE = 80  # columns of Python code


def curl(url: str, body: Mapping[str, Any]) -> str:
    """Returns a call as a shell command. An input that is IMAGE is read from a file."""
    head = (
        f"curl {'-N ' if body.get('stream') else ''}{url}/infer \\\n"
        '  -H "Authorization: Bearer $MILLRACE_API_KEY" \\\n'
        "  -H 'Content-Type: application/json' \\\n"
    )
    if body["input"] != IMAGE:
        return f"{head}  -d {shlex.quote(orjson.dumps(body).decode())}"
    rest = {name: value for name, value in body.items() if name != "input"}
    begun = shlex.quote(orjson.dumps(rest).decode().removesuffix("}") + ',"input":"')
    return f"(echo -n {begun}; base64 -w0 picture.jpg; echo '\"}}') |\n{head}  -d @-"


def python(url: str, body: Mapping[str, Any]) -> str:
    """Returns a call with the Python client. An input that is IMAGE is read from a file."""
    value, named = body["input"], repr(body["model"])
    client = f"client = Client({url!r})  # the key: MILLRACE_API_KEY"
    if value == IMAGE:
        read = 'value = b64encode(Path("picture.jpg").read_bytes()).decode()'
        imports = ["from base64 import b64encode", "from pathlib import Path", ""]
    else:
        read, imports = f"value = {pprint.pformat(value, width=_WIDE, sort_dicts=False)}", []
    head = [*imports, "from millrace import Client", "", client, read]
    if body.get("stream") and isinstance(value, dict) and "messages" in value:
        stream = f'for chunk in client.chat.stream({named}, value.pop("messages"), **value):'
        return "\n".join([*head, stream, '    print(chunk.text, end="", flush=True)'])
    params = f", params={body['params']!r}" if body.get("params") else ""
    return "\n".join([*head, f"print(client.infer({named}, value{params}).output)"])
