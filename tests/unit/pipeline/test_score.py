"""Verdicts become rewards; what was not judged becomes none."""

import asyncio

import pytest

from peira.pipeline.refill import draw_with_signal
from peira.pipeline.score import score_groups
from peira.types.rollout import Completion, Group, Rollout, StopReason, Turn
from peira.types.scored import ScoredGroup
from peira.types.task import Task
from peira.types.verdict import Verdict, VerdictStatus

TASK = Task(id="t", prompt="")


def group(*stops: StopReason) -> Group:
    return Group(
        task=TASK,
        rollouts=tuple(
            Rollout(
                id=f"0/t/{i}",
                task=TASK,
                turns=(
                    Turn(
                        prompt_ids=(1,),
                        completion=Completion(
                            request_id="t",
                            index=i,
                            token_ids=(2,),
                            logprobs=(-1.0,),
                            stop_reason=stop,
                            policy_version=0,
                        ),
                        text=f"text {i}",
                    ),
                ),
            )
            for i, stop in enumerate(stops)
        ),
    )


def first_channel(verdicts):
    return next(iter(verdicts.values())).score


def judge_with(*verdicts: Verdict):
    async def judge(attempts):
        assert [attempt.text for _, attempt in attempts] == [f"text {i}" for i in range(len(attempts))]
        return [{"v": verdict} for verdict in verdicts]

    return judge


@pytest.mark.parametrize(
    ("policy", "reward", "excluded"),
    [("score", 1.0, ""), ("zero", 0.0, ""), ("mask", None, "masked_truncated")],
)
def test_what_a_truncated_completion_is_worth_is_a_choice(policy, reward, excluded):
    judge = judge_with(Verdict(score=1.0))
    (scored,) = asyncio.run(
        score_groups([group(StopReason.LENGTH)], judge, combine=first_channel, truncated=policy)
    )
    assert (scored.rollouts[0].reward, scored.rollouts[0].excluded) == (reward, excluded)


def test_a_broken_verifier_gives_no_reward_and_says_why():
    judge = judge_with(Verdict(score=0.0), Verdict.broken(VerdictStatus.TIMEOUT, "10 s"))
    (scored,) = asyncio.run(
        score_groups([group(StopReason.END, StopReason.END)], judge, combine=first_channel, truncated="score")
    )
    assert [(r.reward, r.excluded) for r in scored.rollouts] == [(0.0, ""), (None, "timeout")]


def test_shaping_is_added_to_the_reward_and_kept_out_of_the_outcome():
    judge = judge_with(Verdict(score=1.0))
    (scored,) = asyncio.run(
        score_groups(
            [group(StopReason.END)],
            judge,
            combine=first_channel,
            truncated="score",
            shape=lambda rollout: {"overlong": -0.25},
        )
    )
    assert (scored.rollouts[0].outcome, scored.rollouts[0].reward) == (1.0, 0.75)


def test_a_judge_that_loses_a_verdict_is_caught_before_rewards_shift():
    judge = judge_with(Verdict(score=1.0))
    with pytest.raises(RuntimeError, match="1 verdicts for 2 rollouts"):
        asyncio.run(
            score_groups(
                [group(StopReason.END, StopReason.END)], judge, combine=first_channel, truncated="score"
            )
        )


def refill(signals: list[bool], wanted: int, max_refills: int):
    """Draw tasks whose groups have a signal as scripted; returns (groups drawn, refills)."""
    tasks = iter(Task(id=str(i), prompt="") for i in range(len(signals)))

    async def score(drawn, first):
        return [ScoredGroup(task=task, rollouts=()) for task in drawn]

    drawn = asyncio.run(
        draw_with_signal(
            lambda n: [next(tasks) for _ in range(n)],
            score,
            wanted=wanted,
            max_refills=max_refills,
            has_signal=lambda g: signals[int(g.task.id)],
        )
    )
    return [int(g.task.id) for g in drawn.groups], drawn.refills


def test_a_refill_draws_exactly_what_is_missing():
    # 4 wanted, tasks 1 and 2 dead: draw 2 more (4, 5), 5 dead: draw 1 more (6)
    assert refill([True, False, False, True, True, False, True], 4, 3) == ([0, 1, 2, 3, 4, 5, 6], 2)


def test_refills_end_at_their_ceiling():
    assert refill([False] * 8, 2, 3) == (list(range(8)), 3)


def test_no_refill_when_every_group_has_a_signal():
    assert refill([True, True], 2, 3) == ([0, 1], 0)
