"""Several verifiers side by side become one reward, or none."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peira.errors import ConfigError, DataError
from peira.types.task import Task
from peira.types.verdict import Attempt, Verdict, VerdictStatus
from peira.verifiers.channels import Channel, VerifierSet, combine
from peira.verifiers.exact import ExactVerifier
from peira.verifiers.numeric import NumericVerifier
from tests.unit.verifiers.hostile import Obedient

BROKEN = Verdict.broken(VerdictStatus.ERROR, "by request")


@pytest.mark.parametrize(
    ("verdicts", "weights", "reward"),
    [
        ({"a": Verdict(score=0.5)}, {"a": 1.0}, 0.5),
        ({"a": Verdict(score=1.0), "b": Verdict(score=0.5)}, {"a": 1.0, "b": 0.2}, 1.1),
        ({"a": Verdict(score=1.0), "b": Verdict(score=1.0)}, {"a": 1.0, "b": -0.5}, 0.5),
        ({"a": Verdict(score=1.0), "b": BROKEN}, {"a": 1.0, "b": 0.2}, None),
        ({"a": Verdict(score=1.0), "b": BROKEN}, {"a": 1.0, "b": 0.0}, 1.0),
        ({"a": BROKEN}, {"a": 1.0}, None),
        ({"b": Verdict(score=1.0)}, {"a": 1.0, "b": 0.0}, None),
        ({"a": Verdict(score=0.0, status=VerdictStatus.UNPARSEABLE)}, {"a": 1.0}, 0.0),
        ({}, {"a": 1.0}, None),
    ],
)
def test_the_reward_is_the_weighted_sum_or_nothing(verdicts, weights, reward):
    assert combine(verdicts, weights) == reward


@given(st.dictionaries(st.sampled_from("abcd"), st.tuples(st.floats(-2, 2), st.floats(0, 1)), min_size=1))
def test_a_shadow_channel_never_moves_the_reward(table):
    weights = {name: weight for name, (weight, _) in table.items()} | {"shadow": 0.0}
    verdicts = {name: Verdict(score=score) for name, (_, score) in table.items()}
    expected = combine(verdicts, weights)
    for shadow in (Verdict(score=1.0), BROKEN):
        assert combine({**verdicts, "shadow": shadow}, weights) == expected


def channels():
    return VerifierSet(
        [
            Channel(name="number", verifier=NumericVerifier()),
            Channel(name="text", verifier=ExactVerifier(), weight=0.5),
            Channel(name="shape", verifier=Obedient(), weight=0.0, always=True),
        ],
        workers=1,
        timeout_s=10,
    )


def test_a_task_chooses_its_verifier_and_others_are_judged_by_all():
    tasks = [
        Task(id="all", prompt="?", answer="5"),
        Task(id="one", prompt="?", answer="5", verifier="number"),
        Task(id="other", prompt="?", answer="Paris", verifier="text"),
    ]
    with channels() as verifiers:
        table = asyncio.run(verifiers.judge([(task, Attempt(text="it is 5")) for task in tasks]))
        assert [set(row) for row in table] == [
            {"number", "text", "shape"},
            {"number", "shape"},
            {"text", "shape"},
        ]
        # 1 * 1 + 0.5 * 0; 1 * 1; 0.5 * 0
        assert [verifiers.combine(row) for row in table] == [1.0, 1.0, 0.0]
        assert verifiers.judge_blocking([(tasks[1], Attempt(text="5"))])[0]["number"].score == 1.0


def test_a_verifier_that_does_not_exist_is_named_with_the_nearest():
    with channels() as verifiers, pytest.raises(DataError, match="did you mean 'number'"):
        verifiers.check([Task(id="t", prompt="?", verifier="numbre")])


def test_a_broken_channel_leaves_the_others_verdicts_in_place():
    with channels() as verifiers:
        task = Task(id="t", prompt="?", answer="Paris")
        row = verifiers.judge_blocking([(task, Attempt(text="Paris"))])[0]
        assert row["text"].score == 1.0
        assert row["number"].status is VerdictStatus.ERROR  # "Paris" is no number: our fault
        assert verifiers.combine(row) is None


@pytest.mark.parametrize("names", [[], ["a", "a"]])
def test_channels_have_names_of_their_own(names):
    with pytest.raises(ConfigError, match="each with its own name"):
        VerifierSet([Channel(name=name, verifier=ExactVerifier()) for name in names])
