"""Runs trusted test code inside a sandbox of its own, against a program that lives in another one.

Loaded there as a file; imports nothing of peira. What the tests see as the module `solution` is a stand-in:
every use of it is a question to the host, which asks the program's sandbox. Plain data comes back as itself;
any other object stays where it is and is represented by a `Remote`, which never compares equal to anything,
because an object's own idea of equality is the oldest way to pass a test.
"""

import builtins
import json
import os
import sys
import types
from typing import Any, TypeVar

Plain = TypeVar("Plain")


class ProgramEnded(BaseException):
    """The program is gone: no `except Exception` in a test may take this for an answer."""


class RemoteObjectError(Exception):
    """Test code compares, or uses as a truth value, an object that only the program understands."""


_fed_early = False
"""Whether that happened while tests were collected: their number is then its doing."""
_exceptions: dict[str, type[BaseException]] = {}
_fed: list[bool] = []
"""One entry once the program has handed out data: what the tests make of it is then its doing as well."""
_faults: list[str] = []
"""What went wrong on the program's side, so that test code which cannot even start is told apart from it."""


def exception_class(lineage: list[str]) -> type[BaseException]:
    """The local stand-in of an exception class of the program: the builtin one, or a new one below it."""
    if lineage[0] not in _exceptions:
        base: type[BaseException] = ProgramEnded
        for name in lineage:
            found = (
                getattr(builtins, name.removeprefix("builtins."), None)
                if name.startswith("builtins.")
                else None
            )
            if isinstance(found, type) and issubclass(found, Exception):
                base = found
                break
        if lineage[0] == f"builtins.{base.__name__}":
            _exceptions[lineage[0]] = base
        else:
            _exceptions[lineage[0]] = type(lineage[0].rpartition(".")[2], (base,), {})
    return _exceptions[lineage[0]]


def rebuilt(lineage: list[str], message: str) -> BaseException:
    """An exception of the program, to be raised here."""
    kind = exception_class(lineage)
    if issubclass(kind, ProgramEnded):
        return ProgramEnded("fail")  # SystemExit and its like: it left instead of answering
    try:
        return kind(message)
    except TypeError:  # UnicodeDecodeError and its like want more arguments; all of them are ValueErrors
        return ValueError(message)


def ask(verb: str, on: Any, name: str = "", args: Any = (), kwargs: Any = None) -> Any:
    """Have the program do something."""
    from __main__ import decode, encode

    def outgoing(value: Any) -> Any:
        if isinstance(value, Remote):
            return {"ref": object.__getattribute__(value, "_on")}
        raise RemoteObjectError(f"a {type(value).__name__} cannot be passed to the program: plain data only")

    def incoming(wire: dict[str, Any]) -> Any:
        if "exception" in wire:
            return exception_class(wire["exception"])
        return Remote(wire["ref"], str(wire["type"]))

    request = {
        "verb": verb,
        "on": on,
        "name": name,
        "args": encode(list(args), outgoing),
        "kwargs": encode(dict(kwargs or {}), outgoing),
    }
    reply = __ask__(request)  # type: ignore[name-defined]
    if "ended" in reply:
        _faults.append("the program ended")
        raise ProgramEnded(reply["ended"])
    if "error" in reply:
        _faults.append(str(reply["message"]))
        raise rebuilt(list(reply["error"]), reply["message"])
    value = decode(reply["value"], incoming)
    if not isinstance(value, Remote | type | None) and not _fed:
        _fed.append(True)
    return value


class Remote:
    """An object of the program, reached by asking."""

    __slots__ = ("_name", "_on")

    def __init__(self, on: Any, name: str) -> None:
        object.__setattr__(self, "_on", on)
        object.__setattr__(self, "_name", name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return ask("get", self._on, name)

    def __setattr__(self, name: str, value: Any) -> None:
        ask("set", self._on, name, [value])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it there."""
        return ask("call", self._on, args=args, kwargs=kwargs)

    def __iter__(self) -> Any:
        return iter(ask("list", self._on))

    def __len__(self) -> int:
        return _plain(ask("builtin", self._on, "len"), int)

    def __str__(self) -> str:
        return _plain(ask("builtin", self._on, "str"), str)

    def __int__(self) -> int:
        return _plain(ask("builtin", self._on, "int"), int)

    def __float__(self) -> float:
        return _plain(ask("builtin", self._on, "float"), float)

    def __repr__(self) -> str:
        return f"<{self._name} object of the program>"

    def __getitem__(self, key: Any) -> Any:
        return ask("operator", self._on, "getitem", [key])

    def __setitem__(self, key: Any, value: Any) -> None:
        ask("operator", self._on, "setitem", [key, value])

    def __delitem__(self, key: Any) -> None:
        ask("operator", self._on, "delitem", [key])

    def __contains__(self, key: Any) -> bool:
        return _plain(ask("operator", self._on, "contains", [key]), bool)

    def __add__(self, other: Any) -> Any:
        return ask("operator", self._on, "add", [other])

    def __sub__(self, other: Any) -> Any:
        return ask("operator", self._on, "sub", [other])

    def __mul__(self, other: Any) -> Any:
        return ask("operator", self._on, "mul", [other])

    def __bool__(self) -> bool:
        raise RemoteObjectError(f"{self!r} is no truth value")

    def _refuse(self, other: object) -> bool:
        raise RemoteObjectError(f"{self!r} is not data and equals nothing")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __hash__ = None  # type: ignore[assignment]


def _plain(value: Any, kind: type[Plain]) -> Plain:
    if type(value) is not kind:
        raise RemoteObjectError(
            f"the program answered a {type(value).__name__} where Python wants a {kind.__name__}"
        )
    return value


class RemoteModule(types.ModuleType):
    """What the tests import."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        try:
            return ask("get", None, name)
        except AttributeError as error:
            _faults.append(f"the program has no {name}")
            raise AttributeError(_faults[-1]) from error


def run(kind: str, source: str, module: str, entry_point: str, names: list[str]) -> dict[str, Any]:
    """Run test code.

    Returns:
        `cases`: [status, detail] of each test; `unusable`: why the tests could not even start on this
        program; `broken`: why the test code itself is at fault.
    """
    stand_in = RemoteModule(module)
    stand_in.__all__ = names  # type: ignore[attr-defined]
    sys.modules[module] = stand_in
    cases, broken = {"pytest": run_pytest, "asserts": run_asserts, "check": run_check}[kind](
        source, stand_in, entry_point
    )
    at_fault = ""
    if not cases and (_faults or _fed):
        at_fault = _faults[-1] if _faults else f"the tests could not start with what it gave: {broken}"[-500:]
    return {"cases": cases, "unusable": at_fault, "broken": "" if at_fault else broken, "fed": _fed_early}


class _Names(dict[str, Any]):
    """Names of the program, fetched when a statement uses them."""

    def __init__(self, module: types.ModuleType) -> None:
        super().__init__(__name__="tests", __builtins__=builtins)
        self._module = module

    def __missing__(self, name: str) -> Any:
        if name in self._module.__all__:
            return getattr(self._module, name)
        raise KeyError(name)


def run_asserts(source: str, module: types.ModuleType, _: str) -> tuple[list[list[str]], str]:
    """Each statement is a test."""
    try:
        codes = [compile(statement, "tests", "exec") for statement in json.loads(source)]
    except SyntaxError as error:
        return [], str(error)
    return [attempt(exec, code, _Names(module)) for code in codes], ""


def run_check(source: str, module: types.ModuleType, entry_point: str) -> tuple[list[list[str]], str]:
    """`check(candidate)` is one test."""
    namespace: dict[str, Any] = {"__name__": "tests"}
    try:
        exec(compile(source, "tests", "exec"), namespace)
        check = namespace["check"]
    except Exception as error:
        return [], f"{type(error).__name__}: {error}"
    return [attempt(lambda: check(getattr(module, entry_point)))], ""


def attempt(test: Any, *args: Any) -> list[str]:
    """Run one test; its status and what it said."""
    try:
        test(*args)
    except ProgramEnded as error:
        return [str(error), "the program ended"]
    except AssertionError as error:
        return ["fail", str(error)[:200] or "assertion does not hold"]
    except BaseException as error:
        return ["fail", f"{type(error).__name__}: {error}"[:200]]
    return ["pass", ""]


def run_pytest(source: str, _: types.ModuleType, __: str) -> tuple[list[list[str]], str]:
    """Run a test file under pytest, with no plugin and no configuration but ours."""
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    import pytest

    with open("test_task.py", "w", encoding="utf-8") as file:
        file.write(source)
    cases: dict[str, list[str]] = {}
    broken: list[str] = []

    class Recorder:
        @pytest.hookimpl
        def pytest_itemcollected(self, item: Any) -> None:
            cases[item.nodeid] = ["fail", "did not run"]

        @pytest.hookimpl
        def pytest_collection_finish(self, session: Any) -> None:
            global _fed_early
            _fed_early = bool(_fed)

        @pytest.hookimpl
        def pytest_collectreport(self, report: Any) -> None:
            if report.failed:
                broken.append(str(report.longrepr)[-500:])

        @pytest.hookimpl(tryfirst=True)
        def pytest_runtest_makereport(self, item: Any, call: Any) -> None:
            if call.excinfo is not None:
                ended = isinstance(call.excinfo.value, ProgramEnded)
                status = str(call.excinfo.value) if ended else "fail"
                cases[item.nodeid] = [status, f"{item.name}: {call.excinfo.exconly()}".splitlines()[0][:200]]

        @pytest.hookimpl
        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.when == "call" and report.outcome == "passed" and not hasattr(report, "wasxfail"):
                cases[report.nodeid] = ["pass", ""]
            elif report.failed and cases[report.nodeid][0] == "pass":
                cases[report.nodeid] = ["fail", f"{report.when} failed"]

    options = [
        "-p",
        "no:cacheprovider",
        "-p",
        "no:faulthandler",
        "-c",
        "/dev/null",
        "--rootdir",
        ".",
        "--noconftest",
    ]
    pytest.main([*options, "-q", "--import-mode=importlib", "test_task.py"], plugins=[Recorder()])
    return list(cases.values()), broken[0] if broken else ""
