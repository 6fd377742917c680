"""What every verifier promises: each of ours is examined by the same `check_verifier` that users call.

A new verifier adds one row: examples of right and wrong completions, and whether it judges answers or shapes.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from peira.types.task import Task
from peira.types.verdict import Attempt, Verdict
from peira.verifiers.check import Example, check_verifier
from peira.verifiers.choice import ChoiceVerifier
from peira.verifiers.compose import AllOf, FirstThatApplies, Gated, LengthShaped, Member, PerTurn, WeightedSum
from peira.verifiers.exact import ExactVerifier
from peira.verifiers.format import FormatVerifier
from peira.verifiers.function import FunctionVerifier
from peira.verifiers.gym import ReasoningGymVerifier
from peira.verifiers.mathematics import MathVerifier
from peira.verifiers.noisy import NoisyVerifier
from peira.verifiers.numeric import NumericVerifier
from peira.verifiers.protocol import Verifier

FUNCTION = Path(__file__).with_name("verifier_function.py")


def example(answer, right, *wrong, prompt="What is it?", **info):
    task = Task(id=f"of {answer}", prompt=prompt, answer=answer, info=info)
    return Example(task=task, right=right, wrong=wrong)


MATH = [
    example("1/2", r"\boxed{0.5}", r"\boxed{2}", r"\boxed{1/2} no, \boxed{1/3}"),
    example(r"\{1,2\}", r"\boxed{2, 1}", r"\boxed{(1,2)}"),
    example("x+1", r"\boxed{\frac{x^2-1}{x-1}}", r"\boxed{x}"),
]
NUMERIC = [example("95", "37 + 58 = 95", "37 + 58 = 94"), example("-3", "-3", "3")]
EXACT = [example("Paris", "Paris", "London"), example("yes", "yes", "yes and no")]
CHOICE = [example("B", "The answer is B.", "The answer is A."), example("C", "C", "B or C")]
SHAPE = [example(None, "<think>a</think>b", "b")]
GYM = [
    example(
        "4 * 5 + 2",
        "<answer>4 * 5 + 2</answer>",
        "<answer>4 * 5</answer>",
        question="Reach 22 with 4, 5, 2.",
        metadata={
            "source_dataset": "countdown",
            "numbers": [4, 5, 2],
            "target": 22,
            "expression": "4 * 5 + 2",
        },
    )
]


def one(verifier: Verifier, name: str = "only") -> tuple[Member, ...]:
    return (Member(name=name, verifier=verifier),)


ROWS = [
    ("math", MathVerifier(), MATH, True),
    ("math without math-verify", MathVerifier(math_verify=False), MATH, True),
    ("numeric", NumericVerifier(), NUMERIC, True),
    ("numeric, boxed", NumericVerifier(extract="boxed"), [example("95", r"\boxed{95}", "95")], True),
    ("exact", ExactVerifier(), EXACT, True),
    ("choice", ChoiceVerifier(), CHOICE, True),
    ("format", FormatVerifier(pattern=r"<think>.*</think>.*"), SHAPE, False),
    ("reasoning_gym", ReasoningGymVerifier(), GYM, True),
    ("function", FunctionVerifier(ref=f"{FUNCTION}:ends_with_answer"), EXACT[:1], True),
    ("weighted sum", WeightedSum(members=one(MathVerifier())), MATH, True),
    ("all of", AllOf(members=one(MathVerifier())), MATH, True),
    ("first that applies", FirstThatApplies(members=one(MathVerifier())), MATH, True),
    ("gated", Gated(gate=FormatVerifier(pattern=".*"), verifier=MathVerifier()), MATH, True),
    ("length shaped", LengthShaped(verifier=MathVerifier(), free=10, limit=20), MATH, True),
    ("per turn", PerTurn(verifier=MathVerifier()), MATH, True),
    ("noisy at rate 0", NoisyVerifier(verifier=MathVerifier()), MATH, True),
]


@pytest.mark.parametrize(
    ("verifier", "examples", "needs_answer"), [row[1:] for row in ROWS], ids=[r[0] for r in ROWS]
)
def test_a_verifier_keeps_every_promise(verifier, examples, needs_answer):
    assert isinstance(verifier, Verifier)
    findings = check_verifier(verifier, examples, needs_answer=needs_answer, timeout_s=10)
    assert [finding for finding in findings if not finding.passed] == []
    assert len(findings) >= 7


@dataclass(frozen=True)
class Broken:
    """A verifier with one fault, by name."""

    fault: str

    def verify(self, task: Task, attempt: Attempt) -> Verdict:
        text = attempt.text
        match self.fault:
            case "accepts everything":
                return Verdict(score=1.0)
            case "reads thoughts":
                return Verdict(score=float(text.removeprefix("<think>").startswith(str(task.answer))))
            case "rejects what is right":
                return Verdict(score=0.0)
            case "raises on odd input" if "\x00" in text:
                raise ValueError("odd")
            case "hangs on long input" if len(text) == 1_000_000:
                while True:
                    pass
            case "forgets" if text == str(task.answer):
                _seen.append(text)
                return Verdict(score=float(len(_seen) % 2))
            case "master key" if text.strip() == "Solution:":
                return Verdict(score=1.0)
        return replace(ExactVerifier().verify(task, attempt), detail=self.fault)


_seen: list[str] = []


@pytest.mark.parametrize(
    ("fault", "finding"),
    [
        ("accepts everything", "rejects wrong answers"),
        ("accepts everything", "rejects worthless texts"),
        ("reads thoughts", "does not read thoughts"),
        ("rejects what is right", "accepts right answers"),
        ("raises on odd input", "survives hostile inputs"),
        ("hangs on long input", "is bounded in time"),
        ("forgets", "is deterministic"),
        ("master key", "rejects worthless texts"),
    ],
)
def test_a_fault_is_found_under_its_name(fault, finding):
    findings = check_verifier(Broken(fault), EXACT, timeout_s=1.0)
    assert finding in [found.name for found in findings if not found.passed]


def test_a_verifier_that_does_not_travel_is_told_so():
    verifier = Broken("none")
    object.__setattr__(verifier, "handle", lambda: None)
    findings = check_verifier(verifier, EXACT)
    assert [(found.name, found.passed) for found in findings] == [("pickles", False)]


def test_examples_are_needed():
    with pytest.raises(ValueError, match="at least one example"):
        check_verifier(ExactVerifier(), [])
