"""User that the servers run as: PostgreSQL refuses root, so root switches to another."""

import os
import pwd
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from ops.embedded.errors import EmbeddedError
from ops.processes.children import Started, die_with_parent, setpriv

_USERS_FOR_ROOT = ("postgres", "nobody")
# Capabilities to enter root's folders; containers often grant dac_override alone.
_CAPABILITIES = (None, "dac_read_search", "dac_override")
_FIRST_UNREACHABLE = 'for p; do test -x "$p" || { echo "$p"; exit 1; }; done'


@dataclass(frozen=True, slots=True)
class Account:
    """User that a server runs as."""

    uid: int
    gid: int
    capability: str | None = None

    def launch(
        self,
        argv: Sequence[str | Path],
        death_signal: signal.Signals,
        *,
        stdin: int | IO[bytes] = subprocess.DEVNULL,
        stdout: int | IO[bytes] | None = None,
    ) -> Started:
        """Starts a command as this user, in a session that ends with our main thread."""
        switch = self.uid != os.geteuid()
        command = die_with_parent([str(a) for a in argv], death_signal)
        if switch and setpriv() is not None:
            command[1:1] = self._setpriv_options()
            switch = False
        return Started(
            command,
            cwd="/",
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.STDOUT if stdout is not None else None,
            start_new_session=True,
            user=self.uid if switch else None,
            group=self.gid if switch else None,
            extra_groups=[] if switch else None,
        )

    def _setpriv_options(self) -> list[str]:
        options = [f"--reuid={self.uid}", f"--regid={self.gid}", "--clear-groups"]
        if self.capability is None:
            return options
        grant = f"+{self.capability}"
        # access(2), with which PostgreSQL looks for its programs, drops capabilities unless
        # the kernel's set-uid fixup is off.
        bits = ["--securebits", "+no_setuid_fixup"]
        return [*options, *bits, "--inh-caps", grant, "--ambient-caps", grant]


def account_for(data: Path) -> Account:
    """Account of this process; as root, the owner of the data, or one of _USERS_FOR_ROOT."""
    if os.geteuid() != 0:
        return Account(os.geteuid(), os.getegid())
    owner = data.stat().st_uid if data.exists() else 0
    for user in (owner, *_USERS_FOR_ROOT):
        try:
            entry = pwd.getpwnam(user) if isinstance(user, str) else pwd.getpwuid(user)
        except KeyError:
            continue
        if entry.pw_uid != 0:
            return Account(entry.pw_uid, entry.pw_gid)
    raise EmbeddedError(
        f"PostgreSQL refuses to run as root, and none of the users {', '.join(_USERS_FOR_ROOT)} "
        "exists. Add one, or start as another user."
    )


def with_access(account: Account, paths: Sequence[Path]) -> Account:
    """Account with the capability (as root) that it needs to enter these paths."""
    can_grant = account.uid != os.geteuid() and setpriv() is not None
    unreachable = ""
    for capability in _CAPABILITIES if can_grant else (None,):
        candidate = replace(account, capability=capability)
        path = _first_unreachable(candidate, paths)
        if path is None:
            return candidate
        unreachable = unreachable or path
    raise EmbeddedError(
        f"User id {account.uid} can't get at {unreachable or paths[0]}. Let others pass through "
        "the folders above it (chmod o+x), or put the home (MILLRACE_HOME) and the installation "
        "where that user may read, or start as another user than root."
    )


def _first_unreachable(account: Account, paths: Sequence[Path]) -> str | None:
    command: list[str | Path] = ["/bin/sh", "-c", _FIRST_UNREACHABLE, "sh", *paths]
    with account.launch(command, signal.SIGTERM, stdout=subprocess.PIPE) as probe:
        output, _ = probe.communicate()
    return None if probe.returncode == 0 else output.decode(errors="replace").strip()
