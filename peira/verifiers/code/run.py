"""One program against one suite, in fresh sandboxes. Expected values never leave this process.

calls, programs      host  --- inputs --->  [ sandbox: the program ]
                     host  <-- outputs ---  compared here

test code            [ sandbox: the tests ]  -- call -->  host  -- call -->  [ sandbox: the program ]
                     asserts run there       <- data ---  host  <- data ---  asserts cannot be reached
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from peira.errors import VerifierError
from peira.sandbox.protocol import Execution, Limits, Outcome, Sandbox
from peira.sandbox.session import Reply, Session
from peira.verifiers.code import harness
from peira.verifiers.code.compare import Comparison
from peira.verifiers.code.language import Language
from peira.verifiers.code.suite import (
    CallTest,
    CaseResult,
    CodeStatus,
    StdioTest,
    Suite,
    SuiteResult,
    TestCode,
)

_STATUS = {
    Outcome.CRASHED: CodeStatus.RUNTIME_ERROR,
    Outcome.TIMEOUT: CodeStatus.TIMEOUT,
    Outcome.MEMORY: CodeStatus.MEMORY,
    Outcome.OUTPUT_LIMIT: CodeStatus.OUTPUT_LIMIT,
    Outcome.COMPILE_ERROR: CodeStatus.COMPILE_ERROR,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """Where and how suites run."""

    sandbox: Sandbox
    pytest_sandbox: Sandbox | None
    """Where pytest files run, apart from the program; None refuses them."""
    language: Language
    comparison: Comparison
    total_s: float
    """Wall-clock seconds for a whole suite; tests that do not get their turn count as timed out."""
    stop_early: bool
    """Skip what follows the first failure: right when only a full pass counts."""

    def run(self, source: str, suite: Suite) -> SuiteResult:
        """Run the suite.

        Raises:
            VerifierError: the suite cannot run here, or has no test.
            SandboxError: the sandbox broke.
        """
        deadline = time.monotonic() + self.total_s
        if isinstance(suite, TestCode):
            return self._test_code(source, suite, deadline)
        if suite and isinstance(suite[0], CallTest):
            return self._calls(source, [test for test in suite if isinstance(test, CallTest)], deadline)
        return self._programs(source, [test for test in suite if isinstance(test, StdioTest)], deadline)

    def _limits(self, deadline: float) -> Limits:
        limits = self.sandbox.limits
        return replace(limits, wall_s=max(0.01, min(limits.wall_s, deadline - time.monotonic())))

    def _programs(self, source: str, tests: Sequence[StdioTest], deadline: float) -> SuiteResult:
        cases: list[CaseResult] = []
        with self.sandbox.session() as session:
            failed = self.language.build(session, source, self._limits(deadline))
            if failed is not None:
                return SuiteResult(cases=(ended(failed),) * len(tests), total=len(tests))
            for test in tests:
                if time.monotonic() >= deadline:
                    cases.append(CaseResult(status=CodeStatus.TIMEOUT, detail="no time was left for it"))
                else:
                    command, limits = self.language.command(), self._limits(deadline)
                    run = session.run(command, stdin=test.stdin.encode(), limits=limits)
                    cases.append(self._judge_output(run, test))
                if self.stop_early and cases[-1].status is not CodeStatus.PASS:
                    break
        return SuiteResult(cases=tuple(cases), total=len(tests))

    def _judge_output(self, run: Execution, test: StdioTest) -> CaseResult:
        if not run.ok:
            return ended(run)
        if self.comparison.same_output(run.stdout, test.stdout):
            return CaseResult(status=CodeStatus.PASS)
        return CaseResult(status=CodeStatus.FAIL, detail=f"printed {_short(run.stdout)}")

    def _calls(self, source: str, tests: Sequence[CallTest], deadline: float) -> SuiteResult:
        if not self.language.can_call:
            raise VerifierError("code: tests: this language runs whole programs only; give stdin and stdout")
        cases: list[CaseResult] = []
        program = Program(self.sandbox, source)
        with program:
            for test in tests:
                if time.monotonic() >= deadline:
                    cases.append(CaseResult(status=CodeStatus.TIMEOUT, detail="no time was left for it"))
                else:
                    cases.append(self._call(program, test, deadline))
                if self.stop_early and cases[-1].status is not CodeStatus.PASS:
                    break
        return SuiteResult(cases=tuple(cases), total=len(tests))

    def _call(self, program: "Program", test: CallTest, deadline: float) -> CaseResult:
        session = program.ready(self._limits(deadline))
        if isinstance(session, Execution):
            return ended(session)
        reply = session.call(test.name, test.args, test.kwargs, limits=self._limits(deadline))
        if reply.ended is not None or reply.ask is not None:
            return program.lost(reply)
        if reply.error:
            return raised(reply)
        if self.comparison.same(reply.value, test.expected):
            return CaseResult(status=CodeStatus.PASS)
        return CaseResult(status=CodeStatus.FAIL, detail=f"returned {_short(reply.value)}")

    def _test_code(self, source: str, suite: TestCode, deadline: float) -> SuiteResult:
        place = self.pytest_sandbox if suite.kind == "pytest" else self.sandbox
        if place is None:
            raise VerifierError(
                "code: tests: pytest: expected a sandbox with pytest in it; pip install pytest"
            )
        if not self.language.can_call:
            raise VerifierError("code: tests: test code runs Python programs only; give stdin and stdout")
        program = Program(self.sandbox, source, name=suite.module)
        with program, place.session() as tests:
            loaded = program.ready(self._limits(deadline))
            if isinstance(loaded, Execution):
                return SuiteResult(cases=(ended(loaded),), total=max(1, suite.count))
            trusted = replace(place.limits, wall_s=self.total_s)
            started = tests.load(Path(harness.__file__).read_text(), name="harness", limits=trusted)
            if isinstance(started, Execution):
                raise VerifierError(f"code: tests: expected test code to start, got {_short(started.stderr)}")
            reply = tests.call(
                "run",
                [suite.kind, suite.source, suite.module, suite.entry_point, list(program.names)],
                limits=trusted,
            )
            consulted = reply.ask is not None
            while reply.ask is not None and time.monotonic() < deadline:
                reply = tests.answer(self._relay(program, reply.ask, deadline), limits=trusted)
        return self._read_report(reply, suite, consulted=consulted)

    def _relay(self, program: "Program", question: Any, deadline: float) -> dict[str, Any]:
        limits = self._limits(deadline)
        session = program.ready(limits)
        if isinstance(session, Execution):
            return {"ended": ended(session).status.value}
        reply = session.request({**question, "remote": True}, limits=limits, raw=True)
        if reply.ended is not None or reply.ask is not None:
            return {"ended": program.lost(reply).status.value}
        return {"error": reply.error, "message": reply.message} if reply.error else {"value": reply.value}

    def _read_report(self, reply: Reply, suite: TestCode, *, consulted: bool) -> SuiteResult:
        if reply.ask is not None or (reply.ended and reply.ended.outcome is Outcome.TIMEOUT):
            case = CaseResult(status=CodeStatus.TIMEOUT, detail="the tests did not end in time")
            return SuiteResult(cases=(case,), total=max(1, suite.count))
        if reply.ended and consulted:
            case = CaseResult(status=CodeStatus.FAIL, detail="the tests broke on what it gave them")
            return SuiteResult(cases=(case,), total=max(1, suite.count))
        if reply.error or reply.ended:
            raise VerifierError(
                f"code: tests: expected a report, got {reply.error or reply.ended} {reply.message}"
            )
        report = reply.value
        if report["broken"]:
            raise VerifierError(f"code: tests: the test code itself fails: {report['broken']}")
        if report["unusable"]:
            case = CaseResult(status=CodeStatus.FAIL, detail=report["unusable"])
            return SuiteResult(cases=(case,), total=max(1, suite.count))
        cases = tuple(
            CaseResult(status=CodeStatus(status), detail=detail) for status, detail in report["cases"]
        )
        if not cases:
            raise VerifierError(
                "code: tests: expected at least one test, collected none; check the test file"
            )
        if suite.count and len(cases) != suite.count and report["fed"]:
            case = CaseResult(status=CodeStatus.FAIL, detail=f"made {len(cases)} tests of {suite.count}")
            return SuiteResult(cases=(case,), total=suite.count)
        if suite.count and len(cases) != suite.count:
            raise VerifierError(f"code: tests: expected {suite.count} tests, collected {len(cases)}")
        return SuiteResult(cases=cases, total=len(cases))


class Program:
    """A Python program whose functions are called; started again when a call has ended it."""

    def __init__(self, sandbox: Sandbox, source: str, name: str = "solution") -> None:
        self.sandbox, self.source, self.name = sandbox, source, name
        self.names: tuple[str, ...] = ()
        self._session: Session | None = None
        self._stillborn: Execution | None = None

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def ready(self, limits: Limits) -> Session | Execution:
        """The session with the program loaded, or how loading it ended; what cannot load is tried once."""
        if self._stillborn is not None:
            return self._stillborn
        if self._session is None:
            session = self.sandbox.session().__enter__()  # ends in `_close`
            self._session = session
            loaded = session.load(self.source, name=self.name, limits=limits)
            if isinstance(loaded, Execution):
                self._stillborn = loaded
                return loaded
            self.names = loaded
        return self._session

    def lost(self, reply: Reply) -> CaseResult:
        """Give the sandbox up after a call that ended the program; what became of that call."""
        self._close()
        if reply.ended is None:
            return CaseResult(status=CodeStatus.FAIL, detail="asked instead of answering")
        return ended(reply.ended)

    def _close(self) -> None:
        if self._session is not None:
            self._session.__exit__()
            self._session = None


def ended(run: Execution) -> CaseResult:
    """What a program's end means for the test it was in."""
    if run.outcome is Outcome.EXITED:
        if run.exit_code == 0:
            return CaseResult(status=CodeStatus.FAIL, detail="ended before it answered")
        return CaseResult(
            status=CodeStatus.RUNTIME_ERROR, detail=_last_line(run.stderr) or f"exit {run.exit_code}"
        )
    return CaseResult(status=_STATUS[run.outcome], detail=_last_line(run.stderr))


def raised(reply: Reply) -> CaseResult:
    """What an exception means for the call that raised it."""
    name = reply.error[0].removeprefix("builtins.")
    status = CodeStatus.RUNTIME_ERROR
    if "builtins.MemoryError" in reply.error:
        status = CodeStatus.MEMORY
    elif "builtins.Exception" not in reply.error:  # SystemExit and its like: it left instead of answering
        status = CodeStatus.FAIL
    return CaseResult(status=status, detail=f"raised {name[:80]}: {reply.message[:200]}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."


def _last_line(stderr: bytes) -> str:
    lines = stderr[-2000:].decode(errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else ""
