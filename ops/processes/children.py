"""Child processes that are restarted, and that end with us."""

import functools
import logging
import os
import select
import shutil
import signal
import subprocess
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import IO, Any, ClassVar, Protocol

from jobs import clock
from ops.processes import log_rotation, owner

FIRST_BACKOFF_S = 0.2
MAX_BACKOFF_S = 5.0
HEALTHY_AFTER_S = 30.0
GRACE_S = 10.0
KILLED_WITHIN_S = 5.0
POLL_S = 1.0  # between two looks; the end of a process, or a signal, is seen at once
_STOP_POLL_S = 0.02

# The kernel signals nothing to a child whose parent ended before the child asked for it.
_IF_PARENT_LIVES = 'test "$PPID" = "$0" && exec "$@"'

log = logging.getLogger("millrace.processes")


@functools.cache
def setpriv() -> str | None:
    """Path of setpriv, if it can set a death signal (busybox's can't)."""
    program = shutil.which("setpriv")
    if program is None:
        return None
    probe = [program, "--pdeathsig", "TERM", "true"]
    done = subprocess.run(probe, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return program if done.returncode == 0 else None


def die_with_parent(argv: Sequence[str], death_signal: signal.Signals) -> list[str]:
    """Wraps a command so that it gets `death_signal` when the thread that starts it ends.

    The kernel watches the *thread*: start from the main one. Without setpriv: the plain command.
    """
    program = setpriv()
    if program is None:
        return list(argv)
    name = death_signal.name.removeprefix("SIG")
    checked = ["/bin/sh", "-c", _IF_PARENT_LIVES, str(os.getpid()), *argv]
    return [program, "--pdeathsig", name, "--", *checked]


class Process(Protocol):
    """Process as `Started` shows it."""

    pid: int
    returncode: int | None

    def fileno(self) -> int:
        """Returns a descriptor that is readable once the process has ended."""

    def poll(self) -> int | None:
        """Returns the exit status; None while the process runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Returns the exit status. Raises subprocess.TimeoutExpired."""

    def send_signal(self, number: int, /) -> None:
        """Signals the process, unless it has ended."""

    def terminate(self) -> None:
        """Sends SIGTERM."""

    def kill(self) -> None:
        """Sends SIGKILL."""


class Started(subprocess.Popen[bytes]):
    """Process of our own, for whose end `pause` can wait."""

    def __init__(self, argv: Sequence[str], **options: Any) -> None:
        super().__init__(argv, **options)
        self._pidfd = os.pidfd_open(self.pid)
        weakref.finalize(self, os.close, self._pidfd)

    def fileno(self) -> int:
        """Returns a descriptor that is readable once the process has ended."""
        return self._pidfd


@dataclass
class Child:
    """Process that is kept running."""

    name: str
    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)  #: added to ours
    log: Path | None = None  #: bounded file for its output; None: our own stdout and stderr
    pass_fds: tuple[int, ...] = ()
    process: Process | None = field(default=None, init=False)
    restarts: int = field(default=0, init=False)
    _backoff_s: float = field(default=FIRST_BACKOFF_S, init=False)
    _started_at: float = field(default=0.0, init=False)
    _killed: bool = field(default=False, init=False)
    _left_behind: list[Process] = field(default_factory=list, init=False)
    _start_at: float | None = field(default=None, init=False)
    _ended_with: str = field(default="", init=False)
    look: owner.Step = field(init=False, repr=False)  #: at the process; raises owner.Failed

    def __post_init__(self) -> None:
        self.look = owner.Step(f"the watch of {self.name}", self._look_after)

    @property
    def pid(self) -> int | None:
        """Pid of the process that was started last."""
        return self.process.pid if self.process else None

    def alive(self) -> bool:
        """Returns True while the process runs, unless it is left behind."""
        if self.process is None or self.process in self._left_behind:
            return False
        return self.process.poll() is None

    def start(self) -> None:
        """Starts it in a session of its own, so that Ctrl-C in a terminal reaches only us."""
        if self.alive():
            return
        with self._output() as output:
            self.process = self._spawn(output)
        self._started_at, self._start_at = clock.monotonic(), None
        self._killed = False
        self._left_behind = [each for each in self._left_behind if each.poll() is None]

    def _spawn(self, output: IO[bytes] | None) -> Process:
        # SIGKILL: the servers end at the same time, and the next start waits for nobody.
        return Started(
            die_with_parent(self.argv, signal.SIGKILL),
            env={**os.environ, **self.env},
            start_new_session=True,
            pass_fds=self.pass_fds,
            stdout=output,
            stderr=output,
        )

    def _output(self) -> AbstractContextManager[IO[bytes] | None]:
        if self.log is None:
            return nullcontext()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        return self.log.open("ab")

    def terminate(self) -> None:
        """Sends SIGTERM."""
        if self.process is not None:
            self.process.terminate()

    def kill(self) -> None:
        """Kills the process and its group, once: later its pid may be another's. One that doesn't
        end, since it waits in the kernel, is left behind, and counts as ended."""
        if self.process is not None and not self._killed:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.kill()  # it may have no group yet
            self._killed = True
            try:
                self.process.wait(KILLED_WITHIN_S)
            except subprocess.TimeoutExpired:
                self._left_behind.append(self.process)
                log.error(
                    "%s (pid %s) doesn't end %g s after SIGKILL: it waits in the kernel, for a "
                    "disk or a device (`cat /proc/%s/stack`); it is left behind",
                    *(self.name, self.pid, KILLED_WITHIN_S, self.pid),
                )

    @property
    def unsteady(self) -> str:
        """Description of how often it was started again, and how it ended at last."""
        return (
            f"{self.name} was started again {self.restarts} times, at last after {self._ended_with}"
        )

    def _look_after(self) -> None:
        try:
            self.keep_alive()
            if self.log:
                log_rotation.bound(self.log)
        except (OSError, RuntimeError) as error:  # no memory, process, thread or disk space
            log.warning("%s can't be looked after: %s; it is tried again", self.name, error)

    def keep_alive(self) -> None:
        """Restarts the process, after a backoff, where it has ended."""
        if self.process is None:
            return
        if self.alive():
            self.watch()
        if self.alive():
            return
        if self._start_at is None:
            code = self.process.returncode
            code = -signal.SIGKILL if code is None else code  # left behind
            self.ended(code)
            self._plan_restart(code)
        elif clock.monotonic() >= self._start_at:
            self._start_at += MAX_BACKOFF_S  # where it can't be started now
            self.start()
            self.restarts += 1

    def watch(self) -> None:
        """Called at each look while the process runs, or retires: ends one that hangs."""

    def ended(self, code: int) -> None:
        """Called when the process ended by itself, with this exit status."""

    def retired(self) -> None:
        """Called once the process has ended for good, after `Supervisor.retire`."""

    def poll_s(self) -> float:
        """Returns the longest pause before the next `keep_alive`."""
        if self._start_at is None:
            return POLL_S
        return min(POLL_S, max(0.0, self._start_at - clock.monotonic()))

    def healthy(self) -> bool:
        """Returns True if the process had come up: it then restarts at once."""
        return clock.monotonic() - self._started_at >= HEALTHY_AFTER_S

    def restart_delay_s(self, code: int) -> float:
        """Returns the pause before the next start, after the process ended with this exit status;
        inf: it isn't started again."""
        if self.healthy():
            self._backoff_s = FIRST_BACKOFF_S
        delay_s = self._backoff_s
        self._backoff_s = min(2 * self._backoff_s, MAX_BACKOFF_S)
        return delay_s

    def _plan_restart(self, code: int) -> None:
        self.kill()  # what the process left behind in its group
        now = clock.monotonic()
        delay_s = self.restart_delay_s(code)
        self._start_at, self._ended_with = now + delay_s, describe_exit(code)
        then = f"it starts again in {delay_s:.1f} s" if delay_s < inf else "it isn't started again"
        log.warning(
            "%s (pid %s) ended with %s after %.1f s; %s",
            *(self.name, self.pid, self._ended_with, now - self._started_at, then),
        )


def describe_exit(code: int) -> str:
    """Describes an exit status."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


class Supervisor:
    """Children in the order in which they start; for the main thread."""

    def __init__(self, children: Sequence[Child] = ()) -> None:
        self.children = list(children)
        self.retiring: dict[int, Child] = {}  #: by identity

    def add(self, child: Child) -> None:
        """Adds a child, which is not started."""
        self.children.append(child)

    def retire(self, child: Child, grace_s: float = GRACE_S) -> None:
        """Ends a child for good: SIGTERM, and SIGKILL after the grace; returns at once."""
        self.children.remove(child)
        self.retiring[id(child)] = child
        look = functools.partial(self._look_at_retiring, child, clock.monotonic() + grace_s)
        child.look = owner.Step(f"the end of {child.name}", look)
        child.terminate()

    def _look_at_retiring(self, child: Child, until_s: float) -> None:
        if child.alive() and clock.monotonic() < until_s:
            child.watch()
            return
        child.kill()  # what it left behind, at least
        child.retired()
        del self.retiring[id(child)]

    def start(self) -> None:
        """Starts all children."""
        for child in self.children:
            child.start()

    def poll(self) -> None:
        """Restarts children that have ended and whose backoff is over. Raises owner.Failed where a
        thread, or a look at a child, has failed for a minute."""
        owner.check()
        for child in [*self.children, *self.retiring.values()]:
            child.look()

    def unsteady(self) -> list[str]:
        """Describes the children that were started again: how often, and how they ended."""
        return [each.unsteady for each in self.children if each.restarts]

    def pause(self, others: Iterable[Process] = ()) -> None:
        """Sleeps until the next `poll`: it is due after a while, or once one of these or the other
        processes ends."""
        ours = [child.process for child in self.children if child.process and child.alive()]
        pause([*ours, *others], min((child.poll_s() for child in self.children), default=POLL_S))

    def run(self, stop_requested: Callable[[], bool], grace_s: float = GRACE_S) -> None:
        """Runs all children until a stop is requested."""
        try:
            self.start()
            while not stop_requested():
                self.poll()
                self.pause()
        finally:
            self.stop(grace_s)

    def stop(self, grace_s: float = GRACE_S) -> None:
        """Sends SIGTERM to all, last started first, and SIGKILL after the grace."""
        for child in reversed(self.children):
            child.terminate()
        deadline, all = clock.monotonic() + grace_s, [*self.children, *self.retiring.values()]
        while any(c.alive() for c in all) and clock.monotonic() < deadline:
            clock.sleep(_STOP_POLL_S)
        for child in reversed(all):
            if child.alive():
                log.warning(
                    "%s (pid %s) didn't end in %g s: killed", child.name, child.pid, grace_s
                )
            child.kill()


def pause(processes: Iterable[Process], timeout_s: float) -> None:
    """Sleeps until one of the processes ends, StopSignal gets a signal, or time is over."""
    poll = select.poll()
    for fd in StopSignal.wakeup_fds:
        poll.register(fd, select.POLLIN)
    for process in processes:
        poll.register(process, select.POLLIN)
    poll.poll(1000 * timeout_s)


class StopSignal:
    """Returns True, when called, after SIGINT or SIGTERM, which end a `pause`."""

    wakeup_fds: ClassVar[list[int]] = []  #: readable once a signal came

    def __init__(self) -> None:
        self._received = False
        read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        StopSignal.wakeup_fds[:] = [read]
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._receive)

    def _receive(self, *_: object) -> None:
        self._received = True

    def __call__(self) -> bool:
        return self._received
