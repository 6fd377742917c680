"""Thousands of hostile answers through the pool: none hangs, none crashes, none is accepted."""

import random
import time

import pytest

from peira.types.task import Task
from peira.types.verdict import Attempt, VerdictStatus
from peira.verifiers.choice import ChoiceVerifier
from peira.verifiers.exact import ExactVerifier
from peira.verifiers.mathematics import MathVerifier
from peira.verifiers.numeric import NumericVerifier
from peira.verifiers.pool import Job, WorkerPool
from tests.unit.verifiers.adversary import answers

# Nothing that the generator can build has one of these values.
REFERENCES = {
    "math": [
        "8675309",
        r"\frac{8675309}{1729}",
        r"\sqrt{8675309}",
        r"\{8675309, 1729\}",
        "8675309x+1729",
        "x > 8675309",
    ],
    "numeric": ["8675309"],
    "exact": ["8675309"],
    "choice": ["D"],
}
LIMIT_S = 10.0


def through_the_pool(count: int) -> None:
    source = random.Random(count)
    verifiers = {
        "math": MathVerifier(),
        "numeric": NumericVerifier(),
        "exact": ExactVerifier(),
        "choice": ChoiceVerifier(choices="DEFGH"),
    }
    jobs = []
    for index, answer in enumerate(answers(count)):
        name = "math" if index % 2 else source.choice(["numeric", "exact", "choice"])
        text = rf"So \boxed{{{answer}}}." if index % 3 else answer
        task = Task(id=str(index), prompt="?", answer=source.choice(REFERENCES[name]))
        jobs.append(Job(verifier=name, task=task, attempt=Attempt(text=text)))
    started = time.monotonic()
    with WorkerPool(verifiers, workers=2, timeout_s=LIMIT_S) as pool:
        verdicts = pool.judge_blocking(jobs)
        restarts = pool.restarts
    for job, verdict in zip(jobs, verdicts, strict=True):
        place = f"{job.verifier}: {job.task.answer}: {job.attempt.text!r}: {verdict}"
        assert verdict.status not in (VerdictStatus.TIMEOUT, VerdictStatus.ERROR), place
        assert verdict.score == 0, place
    assert restarts == 0
    assert time.monotonic() - started < 60 + count * 0.05


def test_a_thousand_hostile_answers_are_all_judged_and_all_wrong():
    through_the_pool(1000)


@pytest.mark.slow
def test_ten_thousand_hostile_answers_are_all_judged_and_all_wrong():
    through_the_pool(10_000)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_hostile_references_are_refused_or_accept_themselves(seed):
    """A reference is data: it may be odd, but it may not hang or crash its worker."""
    jobs = []
    for index, answer in enumerate(answers(1500, seed)):
        task = Task(id=str(index), prompt="?", answer=answer)
        jobs.append(Job(verifier="math", task=task, attempt=Attempt(text=rf"\boxed{{{answer}}}")))
    with WorkerPool({"math": MathVerifier(math_verify=False)}, workers=2, timeout_s=LIMIT_S) as pool:
        verdicts = pool.judge_blocking(jobs)
        assert pool.restarts == 0
    assert not [verdict for verdict in verdicts if verdict.status is VerdictStatus.TIMEOUT]
    accepted = sum(verdict.score == 1.0 for verdict in verdicts)
    assert accepted > 200  # enough of them are readable for this to mean something
