"""The verifiers of programs and of open answers under the same examination as all others."""

import json

import pytest

from peira.sandbox import BubblewrapSandbox, Limits, probe
from peira.types.task import Task
from peira.verifiers.chat import HttpChat
from peira.verifiers.check import Example, check_verifier
from peira.verifiers.code import CodeVerifier
from peira.verifiers.judge import JudgeVerifier
from peira.verifiers.rubric import RubricVerifier
from tests.unit.verifiers.chat_server import endpoint, items, section, tag_in

PROBE = probe()


def passes(verifier, examples, **options):
    findings = check_verifier(verifier, examples, timeout_s=30.0, **options)
    assert [finding for finding in findings if not finding.passed] == []
    assert len(findings) == 9


def program(answer, right, *wrong):
    tests = [{"args": [n], "expected": answer * n} for n in (2, 3)]
    task = Task(id=str(answer), prompt="Scale.", answer=answer, info={"tests": tests, "entry_point": "f"})
    blocks = [f"```python\n{code}\n```" for code in (right, *wrong)]
    return Example(task=task, right=blocks[0], wrong=tuple(blocks[1:]))


PROGRAMS = [
    program(2, "def f(n): return n + n", "def f(n): return 4", "def f(n: return", "import os; os._exit(0)"),
    program(5, "f = lambda n: 5 * n", "f = lambda n: 5.0 * n", "def g(n): return 5 * n"),
]


@pytest.mark.skipif(not PROBE.checks, reason=f"no isolation on this machine: {PROBE.detail}")
@pytest.mark.parametrize("policy", ["last", "only"])
def test_programs(policy):
    box = BubblewrapSandbox(limits=Limits(wall_s=5))
    passes(CodeVerifier(sandbox=box, extract=policy, total_s=20), PROGRAMS)


def words(answer, right, *wrong, **info):
    task = Task(id=str(answer), prompt="Which number?", answer=answer, info=info)
    return Example(task=task, right=right, wrong=wrong)


def same_number(body):
    """A careful judge: the answer must be the reference, as a sentence or alone."""
    said = section(body, "answer").strip().removeprefix("It is ").removesuffix(".")
    return json.dumps({"tag": tag_in(body), "pass": said == section(body, "reference").strip()})


def test_judges():
    with endpoint(same_number) as server:
        judge = JudgeVerifier(client=HttpChat(base_url=server.url, model="m"))
        passes(judge, [words("42", "It is 42.", "It is 41."), words("7", "7", "It is 42.")])


def one_number(body):
    said = [
        word.strip(".,") for word in section(body, "answer")[:2000].split() if word.strip(".,").isdecimal()
    ]
    fact = {"status": "absent", "value": None} if not said else {"status": "found", "value": said[0]}
    if len(set(said)) > 1:
        fact = {"status": "ambiguous", "value": None}
    return json.dumps({"tag": tag_in(body), **dict.fromkeys(items(body)[0], fact)})


def rubric(truth):
    return [{"ask": "Which number does it commit to?", "answer_type": "count", "gt": truth}]


def test_rubrics():
    with endpoint(one_number) as server:
        verifier = RubricVerifier(client=HttpChat(base_url=server.url, model="m"))
        examples = [
            words("42", "It is 42.", "It is 41.", "It is 41 or 42.", rubric=rubric(42)),
            words("7", "7", "It is 42.", rubric=rubric(7)),
        ]
        passes(verifier, examples)
