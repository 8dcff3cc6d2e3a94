"""Child processes exempt what they loaded from garbage collection."""

import gc
from typing import IO, Any

from jobs.processes.child import ChildKind, Handler
from jobs.processes.pool import ProcessPool
from jobs.settings import Settings


def _start(settings: Settings) -> Handler:
    return _frozen


def _frozen(task: Any, _: IO[bytes] | None) -> int:
    if task:
        __import__(task)
    return gc.get_freeze_count()


def test_what_a_task_imported_is_exempt_before_the_next() -> None:
    pool = ProcessPool(ChildKind("test", _start, nice=0), Settings())
    try:
        found = []
        for task in ("", "", "xml.dom.minidom", ""):
            with pool.child() as child:
                child.send(task)
                found.append(child.result())
    finally:
        pool.close()
    at_first, loaded, same, more = found
    assert at_first == 0
    assert 10_000 < same <= loaded
    assert more > same
