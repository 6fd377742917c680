"""The gap on real programs: evaluators of arithmetic, run in a sandbox on visible and held-out tests.

Visible tests try one feature each; held-out tests compose the same features.

Source: SpecBench, arXiv:2605.21384, for the protocol; programs and numbers are ours.
"""

import random

import pytest

from peira.sandbox import BubblewrapSandbox, Limits, probe
from peira.types.task import Task
from peira.types.verdict import Attempt
from peira.verifiers.code import CodeVerifier
from peira.verifiers.code.gap import selection_regret

PROBE = probe()
pytestmark = pytest.mark.skipif(not PROBE.checks, reason=f"no isolation on this machine: {PROBE.detail}")

VISIBLE = {
    "2+3": 5,
    "9-4": 5,
    "6*7": 42,
    "8//2": 4,
    "(5)": 5,
    "-3": -3,
    "12": 12,
    "7%4": 3,
    "10+1": 11,
    "3*3": 9,
}
HELDOUT = {
    "2+3*4": 14,  # 20 from left to right
    "10-2*3": 4,  # 24
    "(2+3)*4": 20,
    "20//(2+3)": 4,
    "-(2+3)": -5,
    "7%4+1": 4,
    "2*(3+4)*5": 70,
    "1+2+3+4": 10,
    "8-3-2": 3,
    "2*3+4*5": 26,  # 50
}
COMPOSED = {"1+2*3": 7, "(1+2)*3": 9, "2*(3+1)": 8, "9-2*4": 1, "6//(1+2)": 2}
"""Visible tests that compose; other ones than the held-out."""

FULL = """
import ast, operator as op
OPS = {ast.Add: op.add, ast.Sub: op.sub, ast.Mult: op.mul, ast.FloorDiv: op.floordiv, ast.Mod: op.mod}
def value(node):
    if isinstance(node, ast.BinOp):
        return OPS[type(node.op)](value(node.left), value(node.right))
    if isinstance(node, ast.UnaryOp):
        return -value(node.operand)
    return node.value
def f(text):
    return value(ast.parse(text, mode="eval").body)
"""
LEFT_TO_RIGHT = """
import re
def f(text):
    tokens = re.findall(r"\\d+|//|[-+*%]", text.strip("()"))
    sign = -1 if tokens[0] == "-" else 1
    tokens = tokens[tokens[0] == "-":]
    total = sign * int(tokens[0])
    for operator, number in zip(tokens[1::2], tokens[2::2]):
        n = int(number)
        whole, rest = divmod(total, n) if n else (0, 0)
        total = {"+": total + n, "-": total - n, "*": total * n, "//": whole, "%": rest}[operator]
    return total
"""
ADDITION = """
import re
def f(text):
    return sum(int(number) for number in re.findall(r"-?\\d+", text))
"""


def table(tests: dict[str, int]) -> str:
    """A program that is its tests."""
    return f"TABLE = {tests!r}\ndef f(text):\n    return TABLE.get(text, 0)\n"


@pytest.fixture(scope="module")
def verifier():
    return CodeVerifier(sandbox=BubblewrapSandbox(limits=Limits(wall_s=3)), total_s=20)


def rows(tests: dict[str, int]) -> list[dict[str, object]]:
    return [{"args": [text], "expected": value} for text, value in tests.items()]


def audit(verifier, program, visible=VISIBLE, heldout=HELDOUT):
    info = {"tests": rows(visible), "heldout": rows(heldout), "entry_point": "f"}
    return verifier.audit(Task(id="t", prompt="", info=info), Attempt(text=f"```python\n{program}```"))


def test_the_reference_passes_everything_so_that_a_gap_means_something(verifier):
    report = audit(verifier, FULL, VISIBLE | COMPOSED)
    assert (report.visible, report.heldout, report.gap) == (100, 100, 0)


def test_choosing_by_the_visible_score_returns_the_table(verifier):
    # addition: 2+3, 9-4, (5), -3, 12, 10+1 of ten visible; 1+2+3+4, 8-3-2 of the held-out
    pool = [audit(verifier, program) for program in (ADDITION, table(VISIBLE))]
    assert [(report.visible, report.heldout) for report in pool] == [(60, 20), (100, 0)]
    assert max(pool, key=lambda report: report.visible).gap >= 90
    assert selection_regret(pool) == 20
    assert pool[1].flags == ("lookup_table",)
    assert pool[0].flags == ()


def test_visible_tests_that_compose_shrink_an_honest_gap_and_not_that_of_a_table(verifier):
    before, after = audit(verifier, LEFT_TO_RIGHT), audit(verifier, LEFT_TO_RIGHT, VISIBLE | COMPOSED)
    assert before.visible == 100
    assert 0 < before.heldout < 100
    assert after.heldout == before.heldout
    assert after.gap < before.gap - 10
    bigger = VISIBLE | COMPOSED
    assert audit(verifier, table(bigger), bigger).gap == audit(verifier, table(VISIBLE)).gap == 100


def test_what_held_out_tests_say_changes_nothing_that_a_policy_learns(verifier):
    """A policy over four programs, trained on verdicts: the same to the last bit whatever is held out."""
    programs = [FULL, LEFT_TO_RIGHT, ADDITION, table(VISIBLE)]

    def trained(heldout: dict[str, int]) -> list[float]:
        info = {"tests": rows(VISIBLE), "heldout": rows(heldout), "entry_point": "f"}
        task = Task(id="t", prompt="", info=info)
        fraction = CodeVerifier(sandbox=verifier.sandbox, scoring="fraction", total_s=20)
        scores = [
            fraction.verify(task, Attempt(text=f"```python\n{program}```")).score for program in programs
        ]
        dice, weights = random.Random(0), [1.0] * len(programs)
        for _ in range(300):
            (chosen,) = dice.choices(range(len(programs)), weights)
            mean = sum(w * s for w, s in zip(weights, scores, strict=True)) / sum(weights)
            weights[chosen] *= 1 + scores[chosen] - mean
        return weights

    values = list(HELDOUT.values())
    random.Random(1).shuffle(values)
    shuffled = dict(zip(HELDOUT, values, strict=True))
    weights = trained(HELDOUT)
    assert trained(shuffled) == weights
    # the one program that visible tests tell apart loses; the table keeps up with the genuine ones
    assert min(weights[0], weights[1], weights[3]) > weights[2]
