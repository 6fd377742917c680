"""Rewards that teach nothing true."""

import pytest

from peira.build.verifier import build_verifier
from peira.config.load import load_settings
from peira.config.verifier import JudgesConfig
from peira.errors import ConfigError
from peira.types.rollout import StopReason
from peira.types.task import Task
from peira.types.verdict import Attempt, Verdict, VerdictStatus
from peira.verifiers.control import IncorrectVerifier, MajorityVerifier, RandomVerifier
from peira.verifiers.exact import ExactVerifier
from peira.verifiers.numeric import NumericVerifier


def test_a_toss_has_its_probability_and_does_not_look_at_the_answer():
    tosses = RandomVerifier(probability=0.3, seed=1)
    tasks = [Task(id=str(i), prompt="?", answer="yes") for i in range(2000)]
    for text in ("yes", "no"):
        share = sum(tosses.verify(task, Attempt(text=text)).score for task in tasks) / 2000
        assert share == pytest.approx(0.3, abs=0.05)  # five standard errors


def test_a_toss_is_the_same_again_and_another_under_another_seed_or_other_tokens():
    task = Task(id="a", prompt="?")
    many = [Attempt(text="same", token_ids=(i,)) for i in range(64)]
    first = [RandomVerifier(seed=0).verify(task, attempt).score for attempt in many]
    assert first == [RandomVerifier(seed=0).verify(task, attempt).score for attempt in many]
    assert first != [RandomVerifier(seed=1).verify(task, attempt).score for attempt in many]
    assert set(first) == {0.0, 1.0}


def test_incorrect_rewards_a_wrong_answer_and_neither_a_right_one_nor_none():
    turned = IncorrectVerifier(verifier=NumericVerifier())
    task = Task(id="a", prompt="?", answer="4")
    assert [turned.verify(task, Attempt(text=text)).score for text in ("5", "4", "no number")] == [1, 0, 0]
    cut = turned.verify(task, Attempt(text="so", stop_reason=StopReason.LENGTH))
    assert cut.score == 0


def test_incorrect_leaves_alone_what_was_not_judged():
    class Silent:
        def verify(self, task: Task, attempt: Attempt) -> Verdict:
            return Verdict.broken(VerdictStatus.TIMEOUT, "late")

    verdict = IncorrectVerifier(verifier=Silent()).verify(Task(id="a", prompt="?"), Attempt(text="x"))
    assert verdict.status is VerdictStatus.TIMEOUT


def test_the_majority_is_judged_against_and_the_first_wins_a_tie():
    votes = MajorityVerifier(verifier=ExactVerifier(), column="drawn")

    def score(drawn, text):
        return votes.verify(
            Task(id="a", prompt="?", answer="4", info={"drawn": drawn}), Attempt(text=text)
        ).score

    assert (score(["5", "4", "5"], "5"), score(["5", "4", "5"], "4")) == (1, 0)
    assert (score([4, 5], "4"), score([4, 5], "5")) == (1, 0)


@pytest.mark.parametrize("info", [{}, {"drawn": []}, {"drawn": "5"}])
def test_without_earlier_answers_there_is_no_verdict(info):
    votes = MajorityVerifier(verifier=ExactVerifier(), column="drawn")
    verdict = votes.verify(Task(id="a", prompt="?", info=info), Attempt(text="5"))
    assert verdict.status is VerdictStatus.ABSTAIN
    assert "'drawn'" in verdict.detail


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({"kind": "random", "probability": 0.2}, RandomVerifier),
        ({"kind": "incorrect", "of": "numeric"}, IncorrectVerifier),
        ({"kind": "majority", "of": "math", "column": "drawn"}, MajorityVerifier),
    ],
)
def test_controls_are_kinds_of_verifier(settings, kind):
    (config,) = load_settings(JudgesConfig, {"verifiers": [settings]}).verifiers
    assert isinstance(build_verifier(config), kind)


def test_a_probability_beyond_1_is_refused():
    with pytest.raises(ConfigError, match="probability = 2: expected 0 to 1"):
        RandomVerifier(probability=2)
