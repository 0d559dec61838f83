"""Schemes that do not come with codedgrad: of installed packages and of Python files.

A package registers a scheme by an entry point of the group `codedgrad.schemes`:

```toml
[project.entry-points."codedgrad.schemes"]
mine = "mypackage:mine"
```

Two rules:

- **A package is imported when its scheme is asked for by name**, not before. Names come
  from the metadata of installed packages, so a broken package does not disturb
  runs that use other schemes.
- **A file is executed only if the caller passes `run_files`.** The command line does so
  for the words that a person typed. Scenario files, traces and run folders may come
  from strangers, so a path in them is refused.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from codedgrad.core.plan import Scheme
from codedgrad.errors import CodedgradError, InvalidScheme
from codedgrad.schemes.registry import Family

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "codedgrad.schemes"
"""The group of entry points in which packages register schemes."""

_FILE = re.compile(r"([^()]+\.py)(?::([A-Za-z_]\w*))?")
_ATTRIBUTES = (
    "name", "workers", "parts", "placement", "tolerance", "exact", "traits", "plan",
)  # of `Scheme`  # fmt: skip


@dataclass(frozen=True, slots=True)
class Registration:
    """An entry point of an installed package.

    Attributes:
        name: Of the scheme.
        package: That registers it, with its version.
        target: The class or the function, such as `mypackage:mine`.
        entry: Python's own value, which imports it.
    """

    name: str
    package: str
    target: str
    entry: EntryPoint

    def __str__(self) -> str:
        return f"Registered by {self.package} as {self.target}."

    def load(self, is_known: Callable[[str], bool]) -> Family:
        """Import the package and return what makes the scheme.

        Args:
            is_known: Whether a name is that of a scheme.
        """
        try:
            found = self.entry.load()
        except (Exception, SystemExit) as error:  # the package's own code
            raise InvalidScheme(
                f"scheme {self.name} of {self.package} cannot be loaded from "
                f"{self.target}: {_described(error)}",
                f"installing {self.package} again, or mending its entry point",
            ) from error
        made = _checked(found, self.name, f"{self.target} of {self.package}")

        @functools.wraps(made, updated=())
        def family(workers: int, **options: object) -> Scheme:
            scheme = made(workers, **options)
            # Traces and run folders keep the name; a replay builds the scheme from it.
            called = scheme.name.partition("(")[0].strip()
            if not is_known(called):
                raise InvalidScheme(
                    f"{self.target} of {self.package} is registered as {self.name}, "
                    f"and its scheme calls itself {scheme.name!r}, from which a trace "
                    f"cannot be replayed",
                    f"a scheme whose name begins with {self.name}",
                )
            return scheme

        return family


class Families(Mapping[str, Family]):
    """What makes schemes, by name: those of codedgrad, of packages and of files.

    Iterating yields the names of codedgrad and of packages; nothing is imported.

    Args:
        built_in: Those of codedgrad.
        run_files: Whether a name may be `FILE.py:NAME`; the file is then executed.
    """

    def __init__(self, built_in: Mapping[str, Family], run_files: bool = False) -> None:
        self._built_in = built_in
        self._run_files = run_files

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        return name in self._built_in or name in registered() or is_file(name)

    def __iter__(self) -> Iterator[str]:
        yield from self._built_in
        yield from (name for name in registered() if name not in self._built_in)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __getitem__(self, name: str) -> Family:
        """Return what makes the scheme; import its package, or execute its file.

        Raises:
            InvalidScheme: If it cannot be loaded, if two have this name, or if it is a
                file and files are not executed.
        """
        if is_file(name):
            return self._from_file(name)
        by_packages = registered().get(name, ())
        if by_packages and (name in self._built_in or len(by_packages) > 1):
            raise _clash(name, name in self._built_in, by_packages)
        if name in self._built_in:
            return self._built_in[name]
        if not by_packages:
            raise KeyError(name)
        return by_packages[0].load(self.__contains__)

    def _from_file(self, name: str) -> Family:
        shape = _FILE.fullmatch(name)
        assert shape is not None  # is_file has looked
        path, target = shape[1].strip(), shape[2]
        if not self._run_files:
            raise InvalidScheme(
                f"{name!r} names a Python file, and only the command line runs one",
                f"--scheme with it, importing it in Python, or registering the scheme "
                f"as an entry point of {GROUP}",
            )
        if target is None:
            problem = f"{path} names a file, and no scheme in it"
            raise InvalidScheme(problem, f"{path}:NAME")
        if not Path(path).is_file():
            raise InvalidScheme(f"there is no file {path}", "the path of a Python file")
        try:
            module = _executed(Path(path).resolve())
        except (Exception, SystemExit) as error:  # the user's own code
            problem = f"{path} cannot be run: {_described(error)}"
            raise InvalidScheme(problem, "mending that file") from error
        if not hasattr(module, target):
            public = [
                each
                for each, value in vars(module).items()
                if getattr(value, "__module__", None) == module.__name__
                and callable(value)
                and not hasattr(value, "judge")  # a plan, which is no scheme
                and not each.startswith("_")
            ]
            advice = f"one of {', '.join(public)}" if public else "a class or function"
            raise InvalidScheme(f"{path} has no {target}", advice)
        return _checked(getattr(module, target), name, name)


def is_file(name: str) -> bool:
    """Whether the name of a scheme is a Python file, with or without what is in it.

    Example:
        >>> is_file("./mine.py:Mine"), is_file("mine.py"), is_file("mine")
        (True, True, False)
    """
    return _FILE.fullmatch(name) is not None


def registered() -> dict[str, tuple[Registration, ...]]:
    """Return what installed packages register, by name; more than one is a clash."""
    # A search of all installed packages takes some 5 ms; `plan` builds many schemes.
    return _registered(tuple(sys.path))


@functools.cache
def _registered(_path: tuple[str, ...]) -> dict[str, tuple[Registration, ...]]:
    from importlib.metadata import entry_points  # 50 ms that few imports should pay

    found: dict[str, tuple[Registration, ...]] = {}
    for entry in entry_points(group=GROUP):
        distribution = entry.dist
        package = (
            "an installed package"
            if distribution is None
            else f"{distribution.name} {distribution.version}"
        )
        one = Registration(entry.name, package, entry.value, entry)
        found[entry.name] = (*found.get(entry.name, ()), one)
    return found


def _clash(
    name: str, is_built_in: bool, by_packages: tuple[Registration, ...]
) -> InvalidScheme:
    packages = [f"{one.package} ({one.target})" for one in by_packages]
    owners = ["codedgrad itself", *packages] if is_built_in else packages
    other = f"another name in the entry points of {by_packages[-1].package}"
    return InvalidScheme(
        f"there are {len(owners)} schemes called {name}: of {' and of '.join(owners)}",
        f"{other}, or uninstalling it",
    )


def _checked(made_by: object, name: str, where: str) -> Family:
    """Return what makes a scheme, such that its mistakes are said in a sentence.

    Args:
        made_by: The class or the function of a package or a file.
        name: The scheme's, as the caller asked for it.
        where: The place of the class, for messages.
    """
    advice = "a class, or a function of the number of workers that returns a scheme"
    if not callable(made_by):
        problem = f"{where} is of type {type(made_by).__name__} and makes no scheme"
        raise InvalidScheme(problem, advice)
    try:
        parameters = list(inspect.signature(made_by).parameters.values())
    except (TypeError, ValueError):  # of something built into Python
        raise InvalidScheme(f"{where} does not say what it takes", advice) from None
    by_place = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    )
    if not parameters or parameters[0].kind not in by_place:
        raise InvalidScheme(f"{where} does not take a number of workers", advice)
    for each in parameters:
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            # A misspelt option would reach the scheme unnoticed.
            stars = "*" if each.kind is each.VAR_POSITIONAL else "**"
            problem = f"{where} takes {stars}{each.name}"
            raise InvalidScheme(problem, "a parameter with a name for every option")

    @functools.wraps(made_by, updated=())
    def family(workers: int, **options: object) -> Scheme:
        try:
            scheme: Scheme = made_by(workers, **options)
            missing = [each for each in _ATTRIBUTES if not hasattr(scheme, each)]
        except CodedgradError:
            raise
        except Exception as error:  # raised by code that is not codedgrad's
            said = ", ".join(f"{key}={value}" for key, value in options.items())
            shown = f"{name}({said})" if said else name
            raise InvalidScheme(
                f"{shown} fails with {workers} workers: {_described(error)}",
                f'other options (codedgrad schemes "{name}" lists them), or mending it',
            ) from error
        if missing:
            raise InvalidScheme(
                f"{where} makes a {type(scheme).__name__}, which is no scheme: it has "
                f"no {', '.join(missing)}",
                "adding them, as codedgrad.core.Scheme describes",
            )
        if scheme.workers != workers:
            problem = (
                f"{where} is for {scheme.workers} workers, and there are {workers}"
            )
            raise InvalidScheme(problem, "a scheme that has the workers it is given")
        return scheme

    return family


@functools.cache
def _executed(path: Path) -> ModuleType:
    """Execute a Python file, once in a process."""
    name = f"scheme_file_{path.stem}"
    while name in sys.modules:  # another file of this name
        name += "_"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None  # its name ends with .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up there
    # The file may import its neighbours, as in `python FILE.py`; last, so that none of
    # them hides an installed package.
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _described(error: BaseException) -> str:
    """Return an exception of the package or the file in a line, with its place."""
    said = " ".join(str(error).split())
    described = f"{type(error).__name__}: {said}" if said else type(error).__name__
    if isinstance(error, SyntaxError):  # it names the place itself
        return described
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<")
        and frame.filename != __file__
        and "importlib" not in Path(frame.filename).parts
    ]
    if not frames:
        return described
    return f"{described} ({frames[-1].filename}, line {frames[-1].lineno})"
