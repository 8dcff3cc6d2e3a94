"""Stages of an image, built without a daemon: each is an overlay over a base folder, and each RUN a
shell in a root, mount and process namespace of its own.

It takes root, `unshare` and an overlay file system; `lacking` says what isn't there.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.image.dockerfile import State, Step, expand, steps

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_OVERLAY = 'mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$2/root"\n'
_ENTER = """
mount --rbind /dev "$2/root/dev"
mount -t proc proc "$2/root/proc"
"""
_READ_ONLY = """
mount -o remount,bind,ro "$2/root"
mount -t tmpfs tmpfs "$2/root/tmp"
"""
_SHARE = """
for path in $SHARED; do
    if [ -d "$path" ]; then mkdir -p "$2/root$path"
    else mkdir -p "$(dirname "$2/root$path")"; touch "$2/root$path"; fi
    mount --bind "$path" "$2/root$path"
done
"""
_COPY = """
into=$3; shift 3
for from do
    if [ -d "$from" ]; then mkdir -p "$into"; cp -a "$from/." "$into/"
    else mkdir -p "$(dirname "${into}x")"; cp -a "$from" "$into"; fi
done
"""


def lacking() -> str:
    """Says why stages can't be built here; "": they can."""
    if os.geteuid() != 0 or not shutil.which("unshare"):
        return "the steps of the Dockerfile take root and unshare"
    with tempfile.TemporaryDirectory() as folder:
        for name in ("upper", "work", "root"):
            (Path(folder) / name).mkdir()
        done = _in_namespace(_OVERLAY, folder, folder, stderr=subprocess.DEVNULL)
    return "" if done.returncode == 0 else "no overlay can be mounted here"


class Stage:
    """Stage of an image over a base folder; `shared` are paths of this machine that a RUN sees."""

    def __init__(self, base: Path, folder: Path, shared: Sequence[Path] = ()) -> None:
        self.base, self.folder, self._shared = base, folder, shared
        self.state = State({"PATH": PATH})
        for name in ("upper", "work", "root"):
            (folder / name).mkdir(parents=True)

    def shell(self, command: str, extra: Mapping[str, str]) -> None:
        """Does a RUN; extra: variables of this machine's network. Raises CalledProcessError."""
        shared = " ".join(map(str, self._shared))
        script = f"SHARED='{shared}'\n{_OVERLAY}{_ENTER}{_SHARE}"
        self._chroot(script, ["/bin/sh", "-c", command], {**extra, **self.state.variables}, True)

    def copy(self, rest: str, context: Path, named: Mapping[str, "Stage"]) -> None:
        """Does a COPY. Raises CalledProcessError."""
        *words, into = expand(rest, self.state.variables).split()
        other, script = None, _OVERLAY
        if words[0].startswith("--from="):
            other = named[words.pop(0).removeprefix("--from=")]
            script = f"set -- '{other.base}' '{other.folder}'\n{_OVERLAY}"
            context = other.folder / "root"
        target = self.folder / "root" / os.path.join(self.state.workdir, into).lstrip("/")
        ending = "/" if into.endswith(("/", ".")) or len(words) > 1 else ""
        froms = [str(context / word.lstrip("/")) for word in words]
        script += f"set -- '{self.base}' '{self.folder}'\n{_OVERLAY}" if other else ""
        script += 'set -- "$1" "$2" "$INTO" $FROM\n' + _COPY
        environ = {**os.environ, "INTO": f"{target}{ending}", "FROM": " ".join(froms)}
        _in_namespace(script, self.base, self.folder, env=environ, check=True)

    def start(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Runs its entry point, with CMD where there are no words; its root can't be written."""
        command = [*self.state.entrypoint, *(words or self.state.command)]
        return self.execute(*command)

    def execute(self, *command: str) -> "subprocess.CompletedProcess[str]":
        """Runs a program as the image's user, in a root that can't be written but for /tmp."""
        script = _OVERLAY + _READ_ONLY + _ENTER
        return self._chroot(script, command, self.state.environ, False)

    def _chroot(
        self, script: str, command: Sequence[str], environ: Mapping[str, str], check: bool
    ) -> "subprocess.CompletedProcess[str]":
        enter = 'shift 2\ncd /\nexec env -i "$@"'
        variables = [f"{name}={value}" for name, value in environ.items()]
        root = str(self.folder / "root")
        inside = ["chroot", f"--userspec={self.state.user}", root]
        inside += ["/bin/sh", "-c", 'cd "$0" && exec "$@"', self.state.workdir, *command]
        arguments = [*variables, *inside]
        return _in_namespace(
            f"{script}{enter}", self.base, self.folder, *arguments,
            check=check, capture_output=not check, text=True,
        )  # fmt: skip


def build(
    text: str, context: Path, base: Path, folder: Path, given: Mapping[str, str],
    network: Mapping[str, str], shared: Sequence[Path],
) -> Stage:  # fmt: skip
    """Does the steps of a Dockerfile one after the other; returns its last stage."""
    named: dict[str, Stage] = {}
    stage: Stage | None = None
    for step in steps(text):
        if step.name == "FROM":
            name = step.rest.partition(" AS ")[2] or str(len(named))
            stage = named[name] = Stage(base, folder / name, shared)
        elif stage is not None:
            _do(stage, step, context, named, given, network)
    assert stage is not None, "the file has no FROM"
    return stage


def _do(
    stage: Stage, step: Step, context: Path, named: Mapping[str, Stage],
    given: Mapping[str, str], network: Mapping[str, str],
) -> None:  # fmt: skip
    print(f"{step.name} {step.rest}", flush=True)
    if step.name == "RUN":
        stage.shell(step.rest, network)
    elif step.name == "COPY":
        stage.copy(step.rest, context, named)
    else:
        stage.state.apply(step, given)
        if step.name == "WORKDIR":
            (stage.folder / "upper" / stage.state.workdir.lstrip("/")).mkdir(
                parents=True, exist_ok=True
            )


def _in_namespace(
    script: str, base: Path | str, folder: Path | str, *arguments: str, **options: object
) -> "subprocess.CompletedProcess[str]":
    """Runs a script of sh whose mounts are gone afterwards: $1 is the base, $2 the folder."""
    unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"]
    command = [*unshare, "sh", "-euc", script, "sh", str(base), str(folder), *arguments]
    return subprocess.run(command, **options)  # type: ignore[call-overload,no-any-return]
