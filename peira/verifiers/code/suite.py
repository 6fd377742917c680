"""The tests of a task: what they look like in data, and what became of each."""

import ast
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from peira.errors import VerifierError
from peira.types.task import Task


class CodeStatus(StrEnum):
    """What became of a program or of one test. All of them are the policy's doing."""

    PASS = "pass"
    FAIL = "fail"
    RUNTIME_ERROR = "runtime_error"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT_LIMIT = "output_limit"
    COMPILE_ERROR = "compile_error"
    NO_CODE = "no_code"


@dataclass(frozen=True, slots=True, kw_only=True)
class StdioTest:
    """A whole program run: what it reads, what it must print."""

    stdin: str
    stdout: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTest:
    """One call: arguments and the value it must return."""

    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    expected: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class TestCode:
    """Test code that runs in a place of its own and reaches the program only through calls."""

    kind: Literal["pytest", "asserts", "check"]
    source: str
    module: str = "solution"
    entry_point: str = ""
    count: int = 0
    """How many tests it must contain; 0 when the data does not say."""


Suite = Sequence[StdioTest] | Sequence[CallTest] | TestCode


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """What became of one test."""

    status: CodeStatus
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteResult:
    """What became of a suite: the results of the tests that ran, and how many there are."""

    cases: tuple[CaseResult, ...]
    total: int

    @property
    def passed(self) -> int:
        """Tests that passed."""
        return sum(case.status is CodeStatus.PASS for case in self.cases)

    @property
    def status(self) -> CodeStatus:
        """PASS when every test passed, else what became of the first that did not."""
        failed = next((case for case in self.cases if case.status is not CodeStatus.PASS), None)
        return failed.status if failed else CodeStatus.PASS

    @property
    def detail(self) -> str:
        """For a person: how many passed, and what the first failure says."""
        for index, case in enumerate(self.cases):
            if case.status is not CodeStatus.PASS:
                return f"{self.passed} of {self.total} passed; test {index}: {case.detail}".rstrip(": ")
        return f"{self.passed} of {self.total} passed"


def read_suite(task: Task, key: str) -> Suite | None:
    """The tests under `info[key]`; for "tests" the answer stands in when there is no such column.

    Layouts: a list of `{stdin, stdout}` (or `input`, `output`), of `{args, kwargs, expected}` (or
    `args_repr`, `expected_repr`: Python literals, for tuples and sets), or of assert statements; a mapping
    `{inputs, outputs, fn_name?}`, `{pytest, count?}` or `{check, entry_point}`. Any of them may be a JSON
    string.

    Raises:
        VerifierError: no such layout, or no test in it. Bytes are refused: nothing is ever unpickled.
    """
    raw = task.info.get(key)
    if raw is None and key == "tests":
        raw = task.answer
    if raw is None:
        return None
    place = f"task {task.id}: info.{key}"
    if isinstance(raw, str):
        try:
            raw = json.loads(raw)
        except ValueError as error:
            raise VerifierError(f"{place} = {raw[:60]!r}: expected JSON; nothing else is read") from error
    entry = task.info.get("entry_point") or task.info.get("fn_name") or ""
    suite = _from_mapping(raw, entry, place) if isinstance(raw, Mapping) else _from_list(raw, entry, place)
    if not isinstance(suite, TestCode) and not suite:
        raise VerifierError(f"{place}: expected at least one test; no test would pass every program")
    return suite


def _from_mapping(raw: Mapping[str, Any], entry: str, place: str) -> Suite:
    if "pytest" in raw:
        count = int(raw.get("count", 0))
        return TestCode(
            kind="pytest", source=str(raw["pytest"]), module=raw.get("module", "solution"), count=count
        )
    if "check" in raw:
        name = raw.get("entry_point") or entry
        if not name:
            raise VerifierError(f"{place}: check: expected an entry_point: the function that check receives")
        return TestCode(kind="check", source=str(raw["check"]), entry_point=str(name), count=1)
    if "inputs" in raw and "outputs" in raw:
        inputs, outputs = list(raw["inputs"]), list(raw["outputs"])
        if len(inputs) != len(outputs):
            raise VerifierError(f"{place}: {len(inputs)} inputs but {len(outputs)} outputs")
        name = raw.get("fn_name") or entry
        if name:
            return [
                CallTest(name=name, args=tuple(args), expected=value)
                for args, value in zip(inputs, outputs, strict=True)
            ]
        pairs = zip(inputs, outputs, strict=True)
        return [StdioTest(stdin=_text(given), stdout=_text(wanted)) for given, wanted in pairs]
    raise VerifierError(f"{place}: keys = {sorted(raw)[:8]}: expected pytest, check, or inputs and outputs")


def _from_list(raw: Any, entry: str, place: str) -> Suite:
    if not isinstance(raw, Sequence) or isinstance(raw, bytes | bytearray):
        raise VerifierError(f"{place} = {str(raw)[:60]!r}: expected a list of tests as plain JSON")
    rows = list(raw)
    if rows and all(isinstance(row, str) for row in rows):
        return TestCode(kind="asserts", source=json.dumps(rows), count=len(rows))
    suite: list[Any] = [_from_row(row, entry, f"{place}[{index}]") for index, row in enumerate(rows)]
    if len({type(test) for test in suite}) > 1:
        raise VerifierError(f"{place}: expected tests of one layout, got calls and programs mixed")
    return suite


def _from_row(row: Any, entry: str, place: str) -> StdioTest | CallTest:
    if not isinstance(row, Mapping):
        raise VerifierError(f"{place} = {str(row)[:60]!r}: expected a mapping or an assert statement")
    for given, wanted in (("stdin", "stdout"), ("input", "output")):
        if given in row and wanted in row:
            return StdioTest(stdin=_text(row[given]), stdout=_text(row[wanted]))
    try:
        args = ast.literal_eval(row["args_repr"]) if "args_repr" in row else row["args"]
        expected = ast.literal_eval(row["expected_repr"]) if "expected_repr" in row else row["expected"]
    except (KeyError, ValueError, SyntaxError) as error:
        keys = sorted(row)[:8]
        raise VerifierError(
            f"{place}: keys = {keys}: expected stdin and stdout, or args and expected"
        ) from error
    name = row.get("name") or entry
    if not name:
        raise VerifierError(f"{place}: expected the function's name; add a column entry_point")
    return CallTest(name=str(name), args=tuple(args), kwargs=dict(row.get("kwargs", {})), expected=expected)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "\n".join(map(str, value))
