"""Rollouts of older weights, and the two ways to take old log-probs."""

import pytest
import torch

from peira.engines.scripted import ScriptedEngine
from peira.errors import ExitCode, StopRun
from peira.runs.ledger import DropReason
from peira.runs.reader import RunReader
from tests.unit.trainer.line import END, Digits, Silent, go, settings

COMPLETIONS = [[7], [1], [2], [7, 1]]


class Lagging(ScriptedEngine):
    """Says that some of its completions were begun by older weights."""

    def __init__(self, *, behind, **options):
        super().__init__(
            vocabulary_size=Digits.vocabulary_size, end_ids=[END], completions=COMPLETIONS, **options
        )
        self.behind = behind

    async def sample(self, requests):
        async for completion in super().sample(requests):
            version = completion.policy_version - self.behind(completion.index)
            yield type(completion)(
                request_id=completion.request_id,
                index=completion.index,
                token_ids=completion.token_ids,
                logprobs=completion.logprobs,
                stop_reason=completion.stop_reason,
                policy_version=version,
            )


def limited(max_lag, **changes):
    return settings(algorithm={"name": "standard", "mismatch": {"max_lag": max_lag}}, **changes)


def test_rollouts_beyond_the_lag_are_dropped_as_stale_and_keep_their_say_in_the_mean(tmp_path):
    observer = Silent()
    engine = Lagging(behind=lambda index: index)  # lags 0, 1, 2, 3
    go(tmp_path, limited(1, steps=1), engine, answers=["7"], observer=observer)
    total = RunReader(tmp_path).ledger().total
    assert (total.trained.rollouts, total.dropped[DropReason.STALE].rollouts) == (4, 4)  # of 2 groups of 4
    assert observer.steps[0]["mismatch/stale_fraction"] == 0.5
    (group, _) = RunReader(tmp_path).rollouts(1)
    assert group.advantages == pytest.approx((3 / 4, -1 / 4, -1 / 4, -1 / 4))  # rewards 1, 0, 0, 0


def test_without_lag_the_limit_changes_nothing(tmp_path):
    tables = []
    for name, config in (("with", limited(0, steps=3)), ("without", settings(steps=3))):
        engine = Lagging(behind=lambda index: 0)
        go(tmp_path / name, config, engine, answers=["7"])
        tables.append(engine._table.detach().clone())
    assert torch.equal(*tables)


def test_when_everything_is_stale_nothing_is_learnt_and_the_run_says_why(tmp_path):
    engine = Lagging(behind=lambda index: 9)
    config = limited(8, steps=9, stop={"collapse_patience": 2})
    with pytest.raises(StopRun, match=r"older than algorithm\.mismatch\.max_lag allows") as caught:
        go(tmp_path, config, engine, answers=["7"])
    assert caught.value.exit_code == ExitCode.COLLAPSE
    assert "optim_step" not in [call.verb for call in engine.calls]


def test_decoupled_takes_the_learners_own_log_probs_even_for_one_update(tmp_path):
    for old, expected in (("auto", []), ("learner", ["logprobs"])):
        engine = Lagging(behind=lambda index: 0)
        config = settings(steps=1, algorithm={"name": "standard", "mismatch": {"old_logprobs": old}})
        go(tmp_path / old, config, engine, answers=["7"])
        assert [call.verb for call in engine.calls if call.verb == "logprobs"] == expected
