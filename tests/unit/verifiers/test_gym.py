"""reasoning-gym's own scorers, kept from running what a policy writes."""

import pytest

from peira.errors import VerifierError
from peira.types.task import Message, Task
from peira.types.verdict import Attempt, VerdictStatus
from peira.verifiers.gym import ReasoningGymVerifier

COUNTDOWN = {"source_dataset": "countdown", "numbers": [4, 5, 2], "target": 22, "expression": "4*5+2"}


def made(family, *, size=1, seed=1, **options):
    import reasoning_gym

    return [
        Task(
            id=f"{family}-{index}",
            prompt=(Message(role="user", content=entry["question"]),),
            answer=entry["answer"],
            info={"question": entry["question"], "metadata": entry["metadata"]},
        )
        for index, entry in enumerate(reasoning_gym.create_dataset(family, size=size, seed=seed, **options))
    ]


def judged(task, text, **settings):
    return ReasoningGymVerifier(**settings).verify(task, Attempt(text=text))


def countdown(text):
    task = Task(id="c", prompt="Reach 22 with 4, 5, 2.", answer="4*5+2", info={"metadata": COUNTDOWN})
    return judged(task, text)


FAMILIES = [
    "basic_arithmetic",
    "chain_sum",
    "countdown",
    "leg_counting",
    "n_queens",
    "polynomial_multiplication",
    "prime_factorization",
    "simple_integration",
    "spell_backward",
    "string_insertion",
    "sudoku",
]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_familys_own_answers_are_worth_everything_and_nonsense_is_not(family):
    for task in made(family, size=3):
        assert judged(task, f"<answer>{task.answer}</answer>").score == 1.0
        assert judged(task, rf"so \boxed{{{task.answer}}}", extract="boxed").score == 1.0
        assert judged(task, "<answer>qqq</answer>").score < 0.1
        assert judged(task, "<answer>qqq</answer>", partial=False).score == 0.0


def test_another_way_to_the_target_is_right():
    assert countdown("<answer>2 + 5*4</answer>").score == 1.0
    assert countdown("<answer>4*5</answer>").score < 1.0


@pytest.mark.parametrize(
    ("extract", "text", "right"),
    [
        ("auto", "<answer>4*5+2</answer>", True),
        ("auto", r"\boxed{4*5+2}", True),
        ("auto", "4*5+2", True),
        ("tag", "4*5+2", False),
        ("boxed", "<answer>4*5+2</answer>", False),
        ("whole", "4*5+2", True),
        ("whole", "it is 4*5+2", False),
        ("auto", "<think>4*5+2</think>", False),
    ],
)
def test_the_answer_is_read_where_it_may_stand(extract, text, right):
    task = Task(id="c", prompt="?", answer="4*5+2", info={"metadata": COUNTDOWN})
    assert (judged(task, text, extract=extract).score == 1.0) is right


@pytest.mark.parametrize(
    "answer",
    [
        "9**9**9**9",
        "(9**99)**99 + ((9**9)**9)**9**9",
        "__import__('os').system('touch /tmp/never')",
        "open('/etc/passwd').read()",
        "().__class__.__base__.__subclasses__()",
        "factorial(10**9)",
        "exec('x')",
        "1e999999999",
        "1.5E-99999999",
        "Symbol('x')",
        "x.evalf(10)",
        "1" * 1000,
    ],
)
def test_no_answer_is_run_as_a_program(answer):
    verdict = countdown(f"<answer>{answer}</answer>")
    assert (verdict.score, verdict.status) == (0.0, VerdictStatus.UNPARSEABLE)


def test_lists_are_read_and_calls_are_not():
    task = made("string_insertion")[0]
    listed = str(list(str(task.answer)))
    assert judged(task, f"<answer>{listed}</answer>").score > 0
    verdict = judged(task, "<answer>['A', exit()]</answer>")
    assert (verdict.score, verdict.status) == (0.0, VerdictStatus.UNPARSEABLE)


def test_an_answer_that_the_scorer_trips_over_is_the_policys_fault():
    verdict = judged(made("prime_factorization")[0], "<answer>two times five</answer>")
    assert (verdict.score, verdict.status) == (0.0, VerdictStatus.UNPARSEABLE)


def test_a_scorer_that_accepts_anything_is_refused():
    with pytest.raises(VerifierError, match="accepts any text as right"):
        judged(made("game_of_life_halting")[0], "<answer>yes</answer>")


@pytest.mark.parametrize("info", [{}, {"metadata": {}}, {"metadata": "countdown"}])
def test_a_task_from_elsewhere_is_our_fault(info):
    with pytest.raises(VerifierError, match="source_dataset: expected a reasoning-gym family"):
        judged(Task(id="t", prompt="?", answer="5", info=info), "5")


def test_an_unknown_family_is_our_fault():
    task = Task(id="t", prompt="?", answer="5", info={"metadata": {"source_dataset": "no_such_family"}})
    with pytest.raises(VerifierError, match="family = 'no_such_family'"):
        judged(task, "5")


def test_nothing_said_is_unparseable():
    assert countdown("").status is VerdictStatus.UNPARSEABLE
    assert countdown("<think>hmm").status is VerdictStatus.UNPARSEABLE
