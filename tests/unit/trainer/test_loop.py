"""What the loop promises, on a policy small enough to see through."""

import pytest
import torch

from peira.errors import ExitCode, StopRun, SyncError
from peira.runs.ledger import DropReason
from peira.runs.reader import RunReader
from peira.trainer.loop import Interrupt
from peira.types.verdict import Verdict, VerdictStatus
from tests.unit.trainer.line import Silent, begins_right, go, settings, table_engine


def verbs(engine):
    return [call.verb for call in engine.calls]


def test_reward_rises_on_a_table_policy(tmp_path):
    observer = Silent()
    config = settings(steps=60, prompts_per_step=4, group_size=8, optimizer={"lr": 0.2})
    go(tmp_path, config, table_engine(), verify=begins_right, answers=["7"], observer=observer)
    rewards = [step["reward/mean"] for step in observer.steps]
    assert sum(rewards[:5]) / 5 < 0.5
    assert sum(rewards[-5:]) / 5 > 0.9


def test_the_sampler_proves_the_weights_before_each_batch(tmp_path):
    engine = table_engine()
    go(tmp_path, settings(steps=3), engine, verify=begins_right)
    order = [verb for verb in verbs(engine) if verb in ("sync_weights", "sample", "optim_step")]
    for i, verb in enumerate(order):
        if verb == "sample":
            assert "sync_weights" in order[:i][-2:]
    assert order[:2] == ["sync_weights", "sample"]


def test_without_signal_no_optimizer_step_and_no_forward_pass(tmp_path):
    engine = table_engine(completions=[[7]])
    before = engine._table.detach().clone()
    go(tmp_path, settings(steps=3), engine, answers=["7"])  # every rollout is right
    assert "optim_step" not in verbs(engine)
    assert "forward_backward" not in verbs(engine)
    assert torch.equal(engine._table.detach(), before)
    ledger = RunReader(tmp_path).ledger()
    ledger.check()
    assert ledger.total.trained.rollouts == 0
    assert ledger.total.dropped[DropReason.COLLAPSED_ALL_RIGHT].rollouts == 3 * 2 * 4


def test_collapse_stops_the_run_with_its_own_code_and_advice(tmp_path):
    engine = table_engine(completions=[[1, 1], [2], [1, 2], [2, 2]])
    config = settings(steps=9, stop={"collapse_patience": 2})
    with pytest.raises(StopRun, match=r"step 2: 2 steps on end without a signal.*too hard") as caught:
        go(tmp_path, config, engine)
    assert caught.value.exit_code == ExitCode.COLLAPSE
    assert len(RunReader(tmp_path).metrics()) == 2  # both steps are there, and saved
    assert (tmp_path / "checkpoints" / "step-2").is_dir()


def test_a_broken_verifier_stops_the_run_before_it_trains_on_anything(tmp_path):
    engine = table_engine()
    with pytest.raises(StopRun, match=r"could not be judged.*error.*for example: no library") as caught:
        go(tmp_path, settings(), engine, verify=lambda *_: Verdict.broken(VerdictStatus.ERROR, "no library"))
    assert caught.value.exit_code == ExitCode.VERIFIER
    assert "optim_step" not in verbs(engine)
    assert RunReader(tmp_path).ledger().total.dropped[DropReason.UNJUDGED].rollouts == 8


def test_an_unjudged_rollout_is_left_out_of_its_group(tmp_path):
    engine = table_engine(completions=[[7], [1], [1, 1], [2, 2]])

    def verify(task, attempt):
        if attempt.text == "22":
            return Verdict.broken(VerdictStatus.TIMEOUT, "")
        return Verdict(score=float(attempt.text == "7"))

    config = settings(steps=1, judging={"max_unjudged_fraction": 0.5})
    go(tmp_path, config, engine, verify=verify)
    (group, _) = RunReader(tmp_path).rollouts(1)
    # rewards 1, 0, 0 of three judged: mean 1/3
    assert group.advantages == pytest.approx((2 / 3, -1 / 3, -1 / 3, None))
    total = RunReader(tmp_path).ledger().total
    assert (total.trained.rollouts, total.dropped[DropReason.UNJUDGED].rollouts) == (6, 2)


def test_dynamic_sampling_draws_again_and_the_ledger_still_balances(tmp_path):
    # Task "7" is right half the time, "3" never: its group is dead and is replaced by the next draw.
    engine = table_engine(completions=[[7], [1], [7], [1]])
    config = settings(steps=2, algorithm={"name": "standard", "dynamic_sampling": True, "max_refills": 3})
    observer = Silent()
    go(tmp_path, config, engine, answers=["7", "3"], observer=observer)
    ledger = RunReader(tmp_path).ledger()
    ledger.check()
    total = ledger.total
    assert total.generated.rollouts == total.trained.rollouts + total.dropped_total.rollouts
    assert total.dropped[DropReason.COLLAPSED_ALL_WRONG].rollouts > 0
    assert observer.steps[0]["advantage/refills"] >= 1
    assert total.trained.rollouts == 2 * 2 * 4


def test_old_logprobs_are_the_learners_own_as_soon_as_there_is_a_second_update(tmp_path):
    engine = table_engine()
    go(tmp_path / "one", settings(steps=1), engine, verify=begins_right)
    assert "logprobs" not in verbs(engine)
    engine = table_engine(completions=[[7], [1], [3], [5]])
    go(tmp_path / "two", settings(steps=1, epochs_per_step=2), engine)
    order = [verb for verb in verbs(engine) if verb in ("logprobs", "forward_backward", "optim_step")]
    assert order == ["logprobs", "forward_backward", "optim_step", "forward_backward", "optim_step"]


def test_a_reference_is_asked_once_per_batch_and_never_trained(tmp_path):
    engine, reference = table_engine(completions=[[7], [1], [3], [5]]), table_engine()
    config = settings(steps=2, algorithm={"name": "standard", "kl": {"coefficient": 0.1}})
    go(tmp_path, config, engine, reference=reference)
    assert verbs(reference) == ["logprobs", "logprobs"]


def test_stale_weights_stop_the_run_before_the_batch(tmp_path):
    engine = table_engine()

    async def refuse():
        raise SyncError("sync_weights: canary gap = 1.7 nats")

    engine.sync_weights = refuse
    with pytest.raises(SyncError):
        go(tmp_path, settings(), engine)
    assert "sample" not in verbs(engine)
    assert RunReader(tmp_path).metrics() == []


class AfterSome(Interrupt):
    """Pressed while the second step is sampling: a step looks once before and 9 times inside."""

    def __init__(self, looks):
        super().__init__()
        self.looks = looks

    def check(self):
        self.looks -= 1
        if self.looks == 0:
            self.set()
        super().check()


def losses(folder):
    return [(m["step"], m.get("policy/loss"), m["reward/mean"]) for m in RunReader(folder).metrics()]


def test_an_interrupt_while_sampling_abandons_the_step_and_saves(tmp_path):
    engine = table_engine(completions=[[7], [1], [3], [5]])
    with pytest.raises(StopRun, match="interrupted after 1 of 3 steps") as caught:
        go(tmp_path / "stopped", settings(), engine, interrupt=AfterSome(15))
    assert caught.value.exit_code == ExitCode.INTERRUPTED
    assert [step for step, _, _ in losses(tmp_path / "stopped")] == [1]
    again = table_engine(completions=[[7], [1], [3], [5]])
    go(tmp_path / "stopped", settings(), again, resume=True)
    go(tmp_path / "whole", settings(), table_engine(completions=[[7], [1], [3], [5]]))
    assert losses(tmp_path / "stopped") == losses(tmp_path / "whole")
    assert losses(tmp_path / "whole")[2][1] is not None


def test_a_resumed_run_continues_the_same_trace(tmp_path):
    whole = settings(steps=6)
    go(tmp_path / "whole", whole, table_engine(), verify=begins_right)
    go(tmp_path / "split", settings(steps=3), table_engine(), verify=begins_right)
    summary = go(tmp_path / "split", whole, table_engine(), verify=begins_right, resume=True)
    assert (summary.steps, summary.new_steps) == (6, 3)
    assert losses(tmp_path / "whole") == losses(tmp_path / "split")
    assert any(loss is not None for _, loss, _ in losses(tmp_path / "whole"))


def test_what_was_written_after_the_checkpoint_is_drawn_again(tmp_path):
    config = settings(steps=3, checkpoint={"every_steps": 2})
    observer = Silent()
    go(tmp_path, config, table_engine(), verify=begins_right)
    checkpoint = tmp_path / "checkpoints" / "step-3"
    (checkpoint / "manifest.json").write_text("{")  # as if the machine had died while it was written
    go(tmp_path, config, table_engine(), verify=begins_right, resume=True, observer=observer)
    assert any("passed over a damaged checkpoint" in event for event in observer.events)
    assert any("resumed from" in event and "8 rollouts" in event for event in observer.events)
    reader = RunReader(tmp_path)
    assert [m["step"] for m in reader.metrics()] == [1, 2, 3]
    reader.ledger().check()


def test_the_learning_rate_follows_the_plan(tmp_path):
    engine = table_engine(completions=[[7], [1], [3], [5]])
    config = settings(steps=3, optimizer={"lr": 0.9, "warmup_steps": 2})
    go(tmp_path, config, engine)
    # peak * (step + 1) / (warmup + 1): 0.3, 0.6, then the peak
    assert [call.argument for call in engine.calls if call.verb == "optim_step"] == pytest.approx(
        [0.3, 0.6, 0.9]
    )


def test_evaluation_is_written_before_and_after_and_not_repeated_on_resume(tmp_path):
    config = settings(steps=2, evaluation={"before": True, "after": True, "samples": 4})
    summary = go(tmp_path, config, table_engine(), verify=begins_right)
    assert summary.before is not None
    assert summary.after is not None
    assert [record.step for record in RunReader(tmp_path).evals()] == [0, 2]
    again = table_engine()
    assert go(tmp_path, config, again, verify=begins_right, resume=True).new_steps == 0
    assert "sample" not in verbs(again)
