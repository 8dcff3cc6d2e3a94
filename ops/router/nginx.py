"""Configuration of nginx that sends each request to its tenant's cell.

The tenant is that of the header X-Millrace-Tenant or, without it, of the key: the router only
chooses a cell, which authenticates the request itself.
"""

import json
from collections.abc import Iterator
from urllib.parse import urlsplit

from ops.router.cells import Cells, Placement

_PAUSED = json.dumps(
    {
        "type": "about:blank",
        "title": "Service Unavailable",
        "status": 503,
        "code": "unavailable",
        "detail": "this tenant is being moved; try again in a few seconds",
    }
)
_MAPS = """\
# Made by `millrace router`; include it in the http block of nginx.conf.
map "$http_x_api_key $http_authorization" $millrace_hint {{
    default "";
    "~(?<millrace_key_hint>mk_[A-Za-z0-9_-]{{5}})" $millrace_key_hint;
}}
map $millrace_hint $millrace_tenant_of_key {{
    default "";
{hints}}}
map $http_x_millrace_tenant $millrace_tenant {{
    default $http_x_millrace_tenant;
    "" $millrace_tenant_of_key;
}}
map $millrace_tenant $millrace_cell {{
    default millrace_{default};
{cells}}}
map $millrace_tenant $millrace_objects {{
    default millrace_{default};
{objects}}}
map $millrace_tenant $millrace_paused {{
    default "";
{paused}}}
map "$millrace_paused$request_method" $millrace_refused {{
    default 0;
    "paused POST" 1;
    "paused PUT" 1;
    "paused PATCH" 1;
    "paused DELETE" 1;
}}
"""
_SERVER = """\
server {{
    listen {listen};
    client_max_body_size 0;
    proxy_http_version 1.1;
    proxy_set_header Connection "";
    proxy_set_header Host $host;
    proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    proxy_set_header X-Forwarded-Proto $scheme;
    proxy_buffering off;
    proxy_read_timeout 1h;
    proxy_send_timeout 1h;
    error_page 418 = @paused;
    if ($millrace_refused) {{
        return 418;
    }}
    location @paused {{
        internal;
        default_type application/problem+json;
        add_header Retry-After 5 always;
        return 503 '{problem}';
    }}
    # A job, call, batch or file that its tenant's cell doesn't know: where the tenant was before.
    location ~ ^/(jobs|calls|v1/batches|v1/files|v1/messages/batches)/[^/] {{
        proxy_next_upstream http_404 non_idempotent;
        proxy_pass http://$millrace_objects;
    }}
    location / {{
        proxy_request_buffering off;
        proxy_next_upstream off;
        proxy_pass http://$millrace_cell;
    }}
}}
"""


def configuration(cells: Cells, listen: str) -> str:
    """Returns the text of a file for nginx's http block. listen: as nginx's directive takes it."""
    placed = cells.tenants.items()
    maps = _MAPS.format(
        default=cells.default,
        hints=_rows((hint, tenant) for tenant, at in placed for hint in at.keys),
        cells=_rows((tenant, f"millrace_{at.cell}") for tenant, at in placed),
        objects=_rows((tenant, _objects(at)) for tenant, at in placed),
        paused=_rows((tenant, '"paused "') for tenant, at in placed if at.paused),
    )
    return "".join([maps, *_upstreams(cells), _SERVER.format(listen=listen, problem=_PAUSED)])


def _upstreams(cells: Cells) -> Iterator[str]:
    for name in cells.cells:
        yield _upstream(f"millrace_{name}", [_server(cells, name)])
    moved = {(at.cell, at.before) for at in cells.tenants.values() if at.before}
    for cell, before in sorted(moved):
        servers = [_server(cells, cell), f"{_server(cells, before)} backup"]
        yield _upstream(f"millrace_{cell}_then_{before}", servers)


def _upstream(name: str, servers: list[str]) -> str:
    lines = "".join(f"    server {server};\n" for server in servers)
    return f"upstream {name} {{\n{lines}    keepalive 64;\n}}\n"


def _server(cells: Cells, name: str) -> str:
    # Never left out because it failed: another cell can't answer in its place.
    return f"{urlsplit(cells.cells[name]).netloc} max_fails=0"


def _objects(at: Placement) -> str:
    return f"millrace_{at.cell}_then_{at.before}" if at.before else f"millrace_{at.cell}"


def _rows(pairs: "Iterator[tuple[str, str]]") -> str:
    return "".join(f"    {key} {value};\n" for key, value in pairs)
