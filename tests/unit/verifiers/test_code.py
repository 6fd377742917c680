"""The code verifier on honest programs and honest data."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from peira.build.verifier import build_verifier
from peira.config.verifier_code import CodeConfig
from peira.errors import SandboxError, VerifierError
from peira.sandbox import BubblewrapSandbox, Limits, UnsafeProcessSandbox, probe
from peira.sandbox.pool import close_pools
from peira.types.task import Task
from peira.types.verdict import Attempt, VerdictStatus
from peira.verifiers.code import CodeVerifier
from peira.verifiers.protocol import Verifier

PROBE = probe()
isolated = pytest.mark.skipif(not PROBE.checks, reason=f"no isolation on this machine: {PROBE.detail}")
SITE = str(Path(pytest.__file__).parents[1])
LIMITS = Limits(wall_s=3)


@pytest.fixture(scope="module", params=[pytest.param("bubblewrap", marks=isolated), "unsafe"])
def verifier(request):
    if request.param == "bubblewrap":
        box = BubblewrapSandbox(limits=LIMITS)
        tests = BubblewrapSandbox(readable=(SITE,), python_path=(SITE,), preload=("pytest",))
    else:
        box, tests = UnsafeProcessSandbox(limits=LIMITS), UnsafeProcessSandbox()
    yield CodeVerifier(sandbox=box, pytest_sandbox=tests, scoring="fraction")
    close_pools()


def judge(verifier, code, tests, label="python", **info):
    task = Task(id="t", prompt="", info={"tests": tests, **info})
    return verifier.verify(task, Attempt(text=f"```{label}\n{code}\n```"))


ADD = "def add(a, b):\n    return a + b"
FOUR_CALLS = [{"args": [n, n], "expected": 2 * n} for n in range(4)]


def test_the_verifier_follows_the_protocol(verifier):
    assert isinstance(verifier, Verifier)


@pytest.mark.parametrize(
    "tests",
    [
        FOUR_CALLS,
        json.dumps(FOUR_CALLS),
        [{"args_repr": "(1, 2)", "expected_repr": "3"}],
        [{"args": [], "kwargs": {"a": 1, "b": 2}, "expected": 3}],
        {"inputs": [[1, 2], [[1], [2]]], "outputs": [3, [1, 2]], "fn_name": "add"},
        [
            "assert add(1, 2) == 3",
            "assert [add(i, 1) for i in range(3)] == [1, 2, 3]",
            "x = add(1, 1)\nassert x == 2",
        ],
        {"check": "def check(candidate):\n    assert candidate('a', 'b') == 'ab'"},
        {"pytest": "from solution import *\ndef test_it():\n    assert add(1.5, 1) == 2.5", "count": 1},
    ],
)
def test_every_layout_of_tests_is_read(tests, verifier):
    verdict = judge(verifier, ADD, tests, entry_point="add")
    assert (verdict.score, verdict.status) == (1.0, VerdictStatus.SCORED)
    assert verdict.detail.startswith("pass: ")


@pytest.mark.parametrize(
    "tests",
    [
        [{"stdin": "1 2\n", "stdout": "3\n"}],
        [{"input": "1 2", "output": "3"}],
        {"inputs": ["1 2", "3 4"], "outputs": ["3", "7"]},
    ],
)
def test_whole_programs_read_and_print(tests, verifier):
    assert judge(verifier, "print(sum(map(int, input().split())))", tests).score == 1.0


def test_a_fraction_counts_the_tests_and_all_wants_every_one(verifier):
    # n + n for n in 0..3 against n * n: 0 = 0, 2 != 1, 4 = 4, 6 != 9: two of four
    product = "def add(a, b):\n    return a * b"
    verdict = judge(verifier, product, FOUR_CALLS, entry_point="add")
    assert verdict.score == 0.5
    assert verdict.parts == {"tests_passed": 2.0, "tests_total": 4.0}
    assert verdict.detail == "fail: 2 of 4 passed; test 1: returned 1"
    assert judge(replace(verifier, scoring="all"), product, FOUR_CALLS, entry_point="add").score == 0.0


def test_a_test_that_kills_the_program_costs_only_itself(verifier):
    code = "import os\ndef add(a, b):\n    if a == 1: os._exit(1)\n    if a == 2: 1 / 0\n    return a + b"
    verdict = judge(verifier, code, FOUR_CALLS, entry_point="add")
    assert verdict.score == 0.5
    assert verdict.detail.startswith("runtime_error: 2 of 4 passed; test 1:")


def test_methods_of_a_solution_class_can_be_called(verifier):
    code = "class Solution:\n    def twoSum(self, nums, target):\n        return [0, 1]"
    tests = [{"args": [[2, 7, 11], 9], "expected": [0, 1]}]
    assert judge(verifier, code, tests, entry_point="Solution.twoSum").score == 1.0


def test_pytest_files_use_objects_exceptions_and_parameters(verifier):
    code = """
class Full(ValueError): pass
class Stack:
    limit = 2
    def __init__(self): self.items = []
    def push(self, x):
        if len(self.items) == self.limit: raise Full("full")
        self.items.append(x)
    def __len__(self): return len(self.items)
    def __contains__(self, x): return x in self.items
    def __getitem__(self, i): return self.items[i]
    def __iter__(self): return iter(self.items)
    def __str__(self): return "|".join(map(str, self.items))
"""
    tests = """
import pytest
import solution
from solution import Stack, Full

@pytest.fixture
def stack():
    s = Stack()
    s.push(1)
    s.push(2)
    return s

def test_contents(stack):
    assert len(stack) == 2 and 1 in stack and 3 not in stack and stack[1] == 2
    assert list(stack) == [1, 2] and str(stack) == "1|2" and stack.items == [1, 2]

@pytest.mark.parametrize("kind", [Full, ValueError, solution.Full])
def test_errors(stack, kind):
    with pytest.raises(kind, match="full"):
        stack.push(3)

def test_attributes(stack):
    stack.limit = 3
    stack.push(3)
    assert len(stack) == 3 and Stack.limit == 2

def test_wrong(stack):
    assert len(stack) == 5

@pytest.mark.skip
def test_skipped():
    pass
"""
    # seven tests: contents, three errors and attributes pass; wrong and skipped do not
    verdict = judge(verifier, code, {"pytest": tests})
    assert verdict.parts == {"tests_passed": 5.0, "tests_total": 7.0}
    assert verdict.score == pytest.approx(5 / 7)


def test_a_program_that_lacks_what_the_tests_import_has_failed_them(verifier):
    tests = {"pytest": "from solution import add\ndef test_it():\n    assert add(1, 2) == 3", "count": 1}
    verdict = judge(verifier, "def sub(a, b): return a - b", tests)
    assert (verdict.score, verdict.status) == (0.0, VerdictStatus.SCORED)
    assert "no add" in verdict.detail


@pytest.mark.parametrize(
    ("tests", "message"),
    [
        (None, "expected tests"),
        ([], "at least one test"),
        ({"pytest": "x = 1"}, "collected none"),
        ({"pytest": "def test_a(): pass", "count": 2}, "expected 2 tests, collected 1"),
        ({"pytest": "import nowhere\ndef test_a(): pass"}, "test code itself"),
        (["assert add(1, 2 =="], "test code itself"),
        ({"check": "def other(c): pass"}, "test code itself"),
        ([{"args": [1]}], "expected stdin and stdout, or args and expected"),
        ([{"args": [1], "expected": 1}, {"stdin": "", "stdout": ""}], "one layout"),
        ({"inputs": [1], "outputs": []}, "1 inputs but 0 outputs"),
        ("not json", "expected JSON"),
        ({"assertions": 1}, "expected pytest, check, or inputs and outputs"),
        (7, "list of tests"),
        ([7], "expected a mapping"),
    ],
)
def test_tests_that_cannot_run_leave_the_program_unjudged(tests, message, verifier):
    with pytest.raises(VerifierError, match=message):
        judge(verifier, ADD, tests, entry_point="add")


def test_a_call_needs_the_name_of_a_function(verifier):
    with pytest.raises(VerifierError, match="entry_point"):
        judge(verifier, ADD, FOUR_CALLS)
    with pytest.raises(VerifierError, match="entry_point"):
        judge(verifier, ADD, {"check": "def check(c): pass"})


def test_held_out_tests_never_change_a_verdict(verifier):
    heldout = [[{"args": [1, 1], "expected": n}] for n in (2, 3)] + ["broken", [7], None]
    verdicts = {
        judge(verifier, ADD, FOUR_CALLS, entry_point="add", heldout=tests).detail for tests in heldout
    }
    assert verdicts == {"pass: 4 of 4 passed"}


def test_a_suite_has_a_time_limit_of_its_own(verifier):
    slow = "import time\ndef add(a, b):\n    time.sleep(0.5)\n    return a + b"
    verdict = judge(replace(verifier, total_s=1.25), slow, FOUR_CALLS, entry_point="add")
    assert verdict.detail.startswith("timeout")
    assert 0 < verdict.parts["tests_passed"] < 4


def test_an_unknown_language_is_refused(verifier):
    with pytest.raises(VerifierError, match=r"language = 'cobol': expected one of \['c', 'python'\]"):
        replace(verifier, language="cobol")


SUM_IN_C = """
#include <stdio.h>
int main(void) { int a, b; while (scanf("%d %d", &a, &b) == 2) printf("%d\\n", a + b); return 0; }
"""
C_TESTS = [{"stdin": "1 2", "stdout": "3"}, {"stdin": "20 22\n1 1", "stdout": "42\n2"}]


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
@pytest.mark.parametrize(
    ("code", "status"),
    [
        (SUM_IN_C, "pass"),
        (SUM_IN_C.replace("a + b", "a - b"), "fail"),
        ("int main(void) { return undefined; }", "compile_error"),
        ("int main(void) { return *(volatile int *)0; }", "runtime_error"),
        ("int main(void) { for (;;); }", "timeout"),
        (
            '#include <stdio.h>\nint main(void) { for (;;) puts("xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"); }',
            "output_limit",
        ),
    ],
)
def test_c_programs_are_compiled_and_judged_by_the_same_rules(code, status, verifier):
    box = replace(verifier.sandbox, limits=Limits(wall_s=5 if status == "pass" else 2, memory_bytes=2**29))
    verdict = judge(replace(verifier, language="c", sandbox=box, total_s=20), code, C_TESTS, label="c")
    assert verdict.detail.split(":")[0] == status
    assert verdict.score == float(status == "pass")


def test_c_has_no_functions_to_call(verifier):
    with pytest.raises(VerifierError, match="whole programs only"):
        judge(replace(verifier, language="c"), SUM_IN_C, FOUR_CALLS, label="c", entry_point="add")


@isolated
def test_the_configuration_builds_a_verifier_that_judges():
    built = build_verifier(CodeConfig(scoring="fraction", containers="loose", warm=0))
    verdict = judge(built, "def f(): return (1, 2)", [{"args": [], "expected": [1, 2]}], entry_point="f")
    assert verdict.score == 1.0
    close_pools()


def test_a_suite_that_may_outlast_its_worker_is_refused():
    with pytest.raises(ValueError, match=r"total_s = 9.0: expected at most timeout_s - 2 = 8.0"):
        CodeConfig(total_s=9)
    assert CodeConfig(total_s=9, timeout_s=11).total_s == 9


def test_without_isolation_the_configuration_builds_nothing_unless_told(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SandboxError, match="install bubblewrap"):
        build_verifier(CodeConfig())
    assert isinstance(build_verifier(CodeConfig(allow_unsafe=True)).sandbox, UnsafeProcessSandbox)
