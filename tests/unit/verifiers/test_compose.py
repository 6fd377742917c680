"""Verifiers made of verifiers, with numbers worked out by hand."""

from dataclasses import dataclass, replace

import pytest

from peira.errors import ConfigError
from peira.types.task import Message, Task
from peira.types.verdict import Attempt, Verdict, VerdictStatus
from peira.verifiers.compose import (
    AllOf,
    FirstThatApplies,
    Gated,
    LengthShaped,
    Member,
    PerTurn,
    Steps,
    WeightedSum,
    reduced,
)
from peira.verifiers.exact import ExactVerifier
from peira.verifiers.noisy import NoisyVerifier

TASK = Task(id="t", prompt="?", answer="yes")


@dataclass
class Says:
    """Always the same verdict; counts how often it was asked."""

    verdict: Verdict
    asked: int = 0
    prepared: int = 0

    def verify(self, task, attempt):
        self.asked += 1
        return self.verdict

    def prepare(self):
        self.prepared += 1


def says(score):
    return Says(Verdict(score=score, detail=f"{score}"))


def broken(status=VerdictStatus.ERROR):
    return Says(Verdict.broken(status, "by request"))


def members(*verifiers, weights=None):
    weights = weights or [1.0] * len(verifiers)
    return tuple(
        Member(name=f"m{index}", verifier=verifier, weight=weight)
        for index, (verifier, weight) in enumerate(zip(verifiers, weights, strict=True))
    )


def verify(verifier, text="yes", **attempt):
    return verifier.verify(TASK, Attempt(text=text, **attempt))


def test_a_weighted_sum_is_a_weighted_mean():
    verdict = verify(WeightedSum(members=members(says(1.0), says(0.5), weights=[3.0, 1.0])))
    assert verdict.score == pytest.approx((3 * 1.0 + 1 * 0.5) / 4)
    assert verdict.parts == {"m0": 1.0, "m1": 0.5}
    assert verdict.detail == "m0: 1.0; m1: 0.5"


def test_a_weighted_sum_is_unjudged_when_a_member_that_counts_is():
    assert verify(WeightedSum(members=members(says(1.0), broken()))).status is VerdictStatus.ERROR
    assert verify(WeightedSum(members=members(says(1.0), broken(), weights=[1.0, 0.0]))).score == 1.0


@pytest.mark.parametrize("weights", [[0.0, 0.0], [1.0, -1.0]])
def test_weights_that_make_no_mean_are_refused(weights):
    with pytest.raises(ConfigError, match="weights"):
        WeightedSum(members=members(says(1.0), says(1.0), weights=weights))


def test_all_of_is_the_lowest_and_stops_at_zero():
    last = says(1.0)
    assert verify(AllOf(members=members(says(1.0), says(0.5)))).score == 0.5
    assert verify(AllOf(members=members(says(0.0), last))).score == 0.0
    assert last.asked == 0
    assert verify(AllOf(members=members(says(0.0), broken()))).score == 0.0
    assert verify(AllOf(members=members(broken(), says(0.0)))).score is None


def test_the_first_that_applies_decides_and_a_broken_one_applies():
    abstains = broken(VerdictStatus.ABSTAIN)
    assert verify(FirstThatApplies(members=members(abstains, says(0.5), says(1.0)))).score == 0.5
    assert verify(FirstThatApplies(members=members(broken(), says(1.0)))).status is VerdictStatus.ERROR
    assert verify(FirstThatApplies(members=members(abstains))).status is VerdictStatus.ABSTAIN


def test_a_closed_gate_is_worth_nothing_and_asks_nobody():
    inner = says(0.7)
    assert verify(Gated(gate=says(1.0), verifier=inner)).score == 0.7
    assert verify(Gated(gate=says(0.9), verifier=inner)).score == 0.0
    assert inner.asked == 1
    assert verify(Gated(gate=says(0.9), verifier=inner, threshold=0.5)).parts == {"gate": 0.9}
    assert verify(Gated(gate=broken(), verifier=inner)).score is None


@pytest.mark.parametrize(
    ("length", "score"),
    [(0, 1.0), (10, 1.0), (15, 0.75), (20, 0.5), (30, 0.5)],  # from 1 at 10 to 0.5 at 20 in a straight line
)
def test_length_takes_from_what_was_earned(length, score):
    shaped = LengthShaped(verifier=says(1.0), free=10, limit=20, floor=0.5)
    assert verify(shaped, token_ids=(7,) * length).score == pytest.approx(score)
    assert verify(replace(shaped, verifier=says(0.0)), token_ids=(7,) * length).score == 0.0


def test_length_is_counted_in_the_unit_asked_for():
    for unit, length in (("characters", 11), ("words", 3), ("tokens", 2)):
        shaped = LengthShaped(verifier=says(1.0), free=0, limit=100, unit=unit)
        verdict = verify(shaped, text="one two tre", token_ids=(1, 2))
        assert verdict.parts["length"] == length
        assert verdict.score == pytest.approx(1 - length / 100)


def test_every_turn_has_a_score_of_its_own():
    messages = tuple(
        Message(role=role, content=content)
        for role, content in [("user", "?"), ("assistant", "no"), ("user", "?"), ("assistant", "yes")]
    )
    verdict = verify(PerTurn(verifier=ExactVerifier(), reduce="mean"), messages=messages)
    assert (verdict.score, verdict.step_scores) == (0.5, (0.0, 1.0))
    assert verify(PerTurn(verifier=ExactVerifier()), messages=messages).score == 1.0
    assert verify(PerTurn(verifier=ExactVerifier())).step_scores == (1.0,)
    assert verify(PerTurn(verifier=broken())).score is None


def test_step_scores_are_reduced_to_one():
    steps = Says(Verdict(score=1.0, step_scores=(0.5, 0.25, 1.0)))
    scores = {
        how: verify(Steps(verifier=steps, reduce=how)).score for how in ("mean", "min", "last", "product")
    }
    assert scores == {"mean": pytest.approx(1.75 / 3), "min": 0.25, "last": 1.0, "product": 0.125}
    assert verify(Steps(verifier=says(0.3))).score == 0.3
    assert reduced((1.0,), "product") == 1.0


@pytest.mark.parametrize("kind", [WeightedSum, AllOf, FirstThatApplies])
def test_members_are_needed_with_names_of_their_own(kind):
    with pytest.raises(ConfigError, match="at least one"):
        kind(members=())
    with pytest.raises(ConfigError, match="its own name"):
        kind(members=(Member(name="a", verifier=says(1.0)), Member(name="a", verifier=says(1.0))))


def test_preparing_the_whole_prepares_the_members():
    inner = says(1.0)
    AllOf(members=members(Gated(gate=inner, verifier=inner), PerTurn(verifier=inner))).prepare()
    assert inner.prepared == 3


def test_noise_flips_at_its_rates_and_always_the_same_attempts():
    # 4000 right and 4000 wrong texts; a rate of 0.2 has a standard error of sqrt(0.16 / 4000) = 0.0063
    noisy = NoisyVerifier(verifier=ExactVerifier(), false_positive_rate=0.1, false_negative_rate=0.2, seed=3)
    wrong = [verify(noisy, text=f"no {index}").score for index in range(4000)]
    tasks = [Task(id=str(index), prompt="?", answer="yes") for index in range(4000)]
    right = [noisy.verify(task, Attempt(text="yes")).score for task in tasks]
    assert sum(wrong) / 4000 == pytest.approx(0.1, abs=0.025)
    assert 1 - sum(right) / 4000 == pytest.approx(0.2, abs=0.032)
    assert right == [noisy.verify(task, Attempt(text="yes")).score for task in tasks]
    other = replace(noisy, seed=4)
    assert right != [other.verify(task, Attempt(text="yes")).score for task in tasks]


def test_noise_says_what_was_true_and_leaves_the_unjudged_alone():
    verdict = verify(NoisyVerifier(verifier=ExactVerifier(), false_negative_rate=1.0))
    assert (verdict.score, verdict.parts) == (0.0, {"clean_score": 1.0, "flipped": 1.0})
    assert verify(NoisyVerifier(verifier=broken(), false_positive_rate=1.0)).score is None


@pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan")])
def test_a_rate_is_a_probability(rate):
    with pytest.raises(ConfigError, match="false_positive_rate"):
        NoisyVerifier(verifier=ExactVerifier(), false_positive_rate=rate)
