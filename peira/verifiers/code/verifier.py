"""Judges a program by its visible tests."""

from dataclasses import dataclass, field
from typing import Literal

from peira.errors import SandboxError, VerifierError
from peira.sandbox.protocol import Sandbox
from peira.types.task import Task
from peira.types.verdict import Attempt, Verdict
from peira.verifiers.answer import unread
from peira.verifiers.code.compare import Comparison
from peira.verifiers.code.extract import Policy, extract_code
from peira.verifiers.code.gap import GapReport
from peira.verifiers.code.language import LANGUAGES
from peira.verifiers.code.run import Runner
from peira.verifiers.code.special_casing import special_casing
from peira.verifiers.code.suite import CodeStatus, Suite, SuiteResult, read_suite


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeVerifier:
    """Runs the program a completion contains against the visible tests of its task.

    A program that fails, crashes, hangs or eats memory is a verdict with a score; `detail` starts with its
    status. A sandbox that fails, or a task without a test, raises `VerifierError`. Held-out tests are never
    read here: see `audit`. What it accepts and what it does not stop: docs/verifiers/code.md.
    """

    sandbox: Sandbox
    """Where the program runs."""
    pytest_sandbox: Sandbox | None = None
    """Where pytest files run, apart from the program; it must find pytest. None refuses them."""
    language: str = "python"
    extract: Policy = "last"
    scoring: Literal["all", "fraction"] = "all"
    """all: 1 when every test passes, else 0; fraction: the share of tests that pass."""
    comparison: Comparison = field(default_factory=Comparison)
    total_s: float = 6.0
    """Seconds for a whole suite; keep it below the time a scoring worker has."""

    def __post_init__(self) -> None:
        if self.language not in LANGUAGES:
            raise VerifierError(f"code: language = {self.language!r}: expected one of {sorted(LANGUAGES)}")

    def verify(self, task: Task, attempt: Attempt) -> Verdict:
        """Judge the program by the visible tests."""
        suite = read_suite(task, "tests")
        if suite is None:
            raise VerifierError(f"task {task.id}: info.tests: expected tests; none would pass every program")
        code = extract_code(attempt.text, LANGUAGES[self.language].labels, self.extract)
        if code is None:
            return unread(attempt, f"{CodeStatus.NO_CODE.value}: no program was found")
        result = self._run(code, suite, stop_early=self.scoring == "all")
        share = result.passed / result.total
        return Verdict(
            score=float(result.status is CodeStatus.PASS) if self.scoring == "all" else share,
            detail=" ".join(f"{result.status.value}: {result.detail}".split())[:500],
            parts={"tests_passed": float(result.passed), "tests_total": float(result.total)},
            flags=special_casing(code, suite) if self.language == "python" else (),
        )

    def audit(self, task: Task, attempt: Attempt) -> GapReport | None:
        """Visible against held-out tests, for evaluation only; None without held-out tests or a program.

        The result is of a type that nothing on the way to a reward accepts.
        """
        visible, heldout = read_suite(task, "tests"), read_suite(task, "heldout")
        code = extract_code(attempt.text, LANGUAGES[self.language].labels, self.extract)
        if visible is None or heldout is None or code is None:
            return None
        seen = self._run(code, visible, stop_early=False)
        unseen = self._run(code, heldout, stop_early=False)
        return GapReport(
            task_id=task.id,
            visible_passed=seen.passed,
            visible_total=seen.total,
            heldout_passed=unseen.passed,
            heldout_total=unseen.total,
            flags=special_casing(code, visible) if self.language == "python" else (),
        )

    def _run(self, code: str, suite: Suite, *, stop_early: bool) -> SuiteResult:
        runner = Runner(
            sandbox=self.sandbox,
            pytest_sandbox=self.pytest_sandbox,
            language=LANGUAGES[self.language],
            comparison=self.comparison,
            total_s=self.total_s,
            stop_early=stop_early,
        )
        try:
            return runner.run(code, suite)
        except SandboxError as error:
            raise VerifierError(f"code: the sandbox broke, the program is unjudged: {error}") from error
