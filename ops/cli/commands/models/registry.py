"""Commands on the registry, in the database itself."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from jobs.errors import NotFound
from jobs.models import models_file
from jobs.models.adapters import Adapter, adapted_key, folder_problems
from jobs.models.routing.table import KEEP_WARM_S, MOST_WARM_S
from jobs.store.registry import aliases, routes, versions
from jobs.views import registry as views
from ops.cli import artifact_push
from ops.cli.admin_database import admin_transaction
from ops.cli.commands.common import JsonObject, as_json_option, show, show_list
from ops.cli.registry_changes import changing, show_changes


@click.command(
    epilog="Example: millrace models push --name x --version 2 --entry '{\"engine\": …}'"
)
@click.argument(
    "folder", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path)
)
@click.option("--name", required=True, help="Name of the model, or of the adapter.")
@click.option("--version", help="Version, which never changes afterwards.")
@click.option("--base", metavar="NAME@VERSION",
              help="The folder is an adapter (LoRA) of this version.")  # fmt: skip
@click.option("--entry", type=JsonObject(), help="Its other fields, as JSON.")
@click.option("--artifact", default="", help="Digest of its files, pushed before: sha256:….")
@click.option("--signature", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Of the folder; default: FOLDER/model.sig, if it is there.")  # fmt: skip
@click.option("--replace", is_flag=True, help="Store all files again, over what is there.")
@as_json_option
def push(
    folder: Path | None,
    name: str,
    version: str | None,
    base: str | None,
    entry: dict[str, Any] | None,
    artifact: str,
    signature: Path | None,
    replace: bool,
    as_json: bool,
) -> None:
    """Registers a version, with the files of FOLDER as its artifact, or an adapter of a version;
    the same again changes nothing."""
    if folder and artifact:
        raise click.UsageError("give a folder or --artifact, not both")
    if not folder and (signature or replace):
        raise click.UsageError("--signature and --replace are about a folder: give it too")
    if base is not None:
        key = _adapter_key(base, name, version, folder or artifact)
    elif version and entry is not None:
        key = f"{name}@{version}"
    else:
        raise click.UsageError("give --version and --entry or, of an adapter, --base")
    stored = None
    if folder:
        stored = artifact_push.store(folder, signature, replace=replace, base=base or "")
    with changing() as registrar:
        if stored:
            artifact = stored.register(registrar.tx)
        if base is None:
            change = registrar.push(name, version or "", entry or {}, artifact)
        else:
            change = registrar.push_adapter(base, name, {**(entry or {}), "artifact": artifact})
    show_changes([(key, change)], as_json)


def _adapter_key(base: str, name: str, version: str | None, files: Path | str) -> str:
    """Returns the name@version of an adapter that is pushed. Raises UsageError, ClickException."""
    of, _, base_version = base.partition("@")
    if not of or not base_version:
        raise click.UsageError(f"{base!r} is no NAME@VERSION, as in x@2")
    if version is not None:
        raise click.UsageError("an adapter has the version of its base: leave --version out")
    if not files:
        raise click.UsageError("give the folder of the adapter, or --artifact")
    if isinstance(files, Path):
        problems = list(folder_problems(Adapter(name, str(files))))
        if problems:
            raise click.ClickException("; ".join(problems))
    return adapted_key(base, name)


@click.command(epilog="Example: millrace models apply models.toml")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@as_json_option
def apply(file: Path, as_json: bool) -> None:
    """Registers all entries of a models file, or none; versions that it doesn't have stay."""
    with changing() as registrar:
        changes = registrar.apply(models_file.read_entries(file))
    show_changes(changes, as_json)


@click.command("list", epilog="Example: millrace models list")
@as_json_option
def list_models(as_json: bool) -> None:
    """Lists the versions of the registry."""
    with admin_transaction() as tx:
        found = versions.all_of(tx), aliases.all_of(tx), routes.all_of(tx)
    data = views.model_objects(*found)
    none = "the registry has no models; register one: `millrace models push`; `millrace models` "
    none += "lists all that are served, those of the models file too"
    show_list({"data": data}, (line for one in data for line in _lines(one)), as_json, none)


@click.command("show", epilog="Example: millrace models show x")
@click.argument("name")
@as_json_option
def show_model(name: str, as_json: bool) -> None:
    """Shows the versions, aliases and routes of a model."""
    with admin_transaction() as tx:
        found = versions.all_of(tx, name), aliases.all_of(tx, name), routes.all_of(tx, name)
    if not any(found):
        raise NotFound(f"the registry has no model {name!r}: `millrace models list` shows all")
    model = views.model_object(name, *found)
    show(model, _lines(model), as_json)


@click.command(epilog="Example: millrace models alias x stable 2")
@click.argument("name")
@click.argument("alias")
@click.argument("version", required=False)
@click.option("--remove", is_flag=True, help="Remove the alias.")
@click.option(
    "--keep-warm-s",
    type=click.FloatRange(0, max=MOST_WARM_S),
    default=KEEP_WARM_S,
    show_default=True,
    help="Time for which workers keep the version before in memory.",
)
@as_json_option
def alias(
    name: str, alias: str, version: str | None, remove: bool, keep_warm_s: float, as_json: bool
) -> None:
    """Points an alias of a model to a version, in all processes within a second."""
    if remove == bool(version):
        raise click.UsageError("name a version, or give --remove")
    with changing() as registrar:
        if version:
            change: str = registrar.set_alias(name, alias, version, keep_warm_s)
        else:
            registrar.remove_alias(name, alias)
            change = "removed"
    show_changes([(f"{name}@{alias}", change)], as_json)


@click.command(epilog="Example: millrace models retire x 1")
@click.argument("name")
@click.argument("version")
@as_json_option
def retire(name: str, version: str, as_json: bool) -> None:
    """Retires a version: nothing new goes to it, and workers end the jobs that it has."""
    with changing() as registrar:
        change = "retired" if registrar.retire(name, version) == "changed" else "unchanged"
        jobs = registrar.unfinished_jobs(name, version)
    if jobs and not as_json:
        click.echo(f"jobs that go on until they end: {', '.join(jobs)}")
    show_changes([(f"{name}@{version}", change)], as_json)


def _lines(model: dict[str, Any]) -> Iterator[str]:
    for one in model["versions"]:
        named = [alias for alias, version in model["aliases"].items() if version == one["version"]]
        words = [one["state"], one["entry"].get("engine", ""), one["created_at"], one["created_by"]]
        yield "  ".join([f"{one['name']}@{one['version']}", *words, *named])
    for route in model["routes"]:
        shares = ", ".join(f"{one['version']} {one['percent']:g} %" for one in route["splits"])
        yield f"{model['name']}: route of {route['tenant']}: {shares}"
