"""Python code of the operator: imported in workers only; its errors name file and line."""

import inspect
import itertools
import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

from jobs.artifacts import declared as artifacts
from jobs.processes import hidden_modules
from workers.engines import frames
from workers.engines.common.device_errors import device_failure
from workers.engines.protocol import DeviceFailed, InvalidInput, Permanent, Transient

_numbers = itertools.count(1)
_PASSED_ON = (
    *(InvalidInput, Transient, Permanent, DeviceFailed),
    *(ConnectionError, TimeoutError, MemoryError),
)


class Faulty(Exception):
    """Raised where code can't be used; the message says where and why."""


class Source:
    """File, imported under a name of its own, or importable module.

    `file_sha256` is checked where it is given. Raises Faulty, and Untrusted where the file isn't
    the declared one.
    """

    def __init__(self, file: str = "", module: str = "", file_sha256: str = "") -> None:
        self._private = ""
        if hidden := hidden_modules.problems({"file": file, "module": module}):
            raise Faulty("; ".join(hidden))
        self.module = self._of_file(Path(file), file_sha256) if file else _imported(module)
        self._file = self.module.__file__ or module

    def find(self, name: str) -> Callable[..., Any] | None:
        """Returns a function or class, or None. Raises Faulty where it isn't callable."""
        attribute = getattr(self.module, name, None)
        if attribute is not None and not callable(attribute):
            raise Faulty(f"{Path(self._file).name}: {name} is no function")
        return attribute

    def need(self, name: str) -> Callable[..., Any]:
        """Returns a function or class. Raises Faulty where there is none."""
        attribute = self.find(name)
        if attribute is None:
            raise Faulty(f"{self._file} has no function {name}")
        return attribute

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Calls the code. Errors of the engine protocol pass; others become Permanent with file and
        line, and with their frames."""
        try:
            return function(*arguments)
        except _PASSED_ON:
            raise
        except Exception as error:
            if type(error).__name__ == "OutOfMemoryError" or device_failure(error):
                raise
            failure = Permanent(_located(error, self._file))
            frames.keep(failure, error)
        raise failure  # outside, so that frames that hold the launch's memory are freed

    def forget(self) -> None:
        """Drops the module from sys.modules."""
        sys.modules.pop(self._private, None)

    def _of_file(self, path: Path, sha256: str) -> ModuleType:
        try:
            text = (artifacts.verified(path, sha256) if sha256 else path).read_bytes()
        except OSError as error:
            raise Faulty(f"{path} can't be read: {error.strerror}") from error
        self._private = f"_millrace_{path.stem}_{next(_numbers)}"
        spec = spec_from_loader(self._private, loader=None, origin=str(path))
        assert spec is not None
        module = module_from_spec(spec)
        module.__file__ = str(path)
        sys.modules[self._private] = module  # dataclasses look their module up
        try:
            exec(compile(text, str(path), "exec"), module.__dict__)
        except (Exception, SystemExit) as error:
            self.forget()
            raise Faulty(_located(error, str(path))) from error
        return module


def positional(function: Callable[..., Any]) -> int:
    """Returns the number of positional arguments that a function requires."""
    needed = (
        p
        for p in inspect.signature(function).parameters.values()
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    )
    return sum(1 for _ in needed)


def search_beside(models: Path | None) -> None:
    """Adds the folder of the models file to the import path, at its end: modules that its entries
    name may stand there, and shadow none."""
    folder = str(models.parent.absolute()) if models else ""
    if folder and folder not in sys.path:
        sys.path.append(folder)


def import_attribute(option: str, name: str) -> Callable[..., Any]:
    """Imports "package.module:name", the value of an option. Raises ValueError."""
    if hidden := hidden_modules.problems({option: name}):
        raise ValueError("; ".join(hidden))
    module, _, attribute = name.partition(":")
    try:
        imported: Callable[..., Any] = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        message = f"options.{option} is {name!r}, which can't be imported: {error}"
        raise ValueError(message) from error
    return imported


def _imported(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise Faulty(f"options.module is {name!r}, which can't be imported: {error}") from error
    except (Exception, SystemExit) as error:
        raise Faulty(_located(error, "")) from error


def _located(error: BaseException, file: str) -> str:
    """Renders an error with its place: in the file, where it passed through it."""
    passed = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in passed if frame.filename == file]
    place = (own or passed)[-1:]
    name, line = (place[0].filename, place[0].lineno) if place else (file, None)
    if isinstance(error, SyntaxError) and error.filename:
        name, line = error.filename, error.lineno
    return f"{Path(name).name}:{line}: {type(error).__name__}: {error}"
