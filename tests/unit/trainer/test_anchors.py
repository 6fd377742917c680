"""Right answers of the untrained model, held on to."""

import pytest
import torch

from peira.errors import CheckpointError, ConfigError
from peira.trainer.anchors import anchors_of, load_anchors
from tests.unit.trainer.line import END, Silent, begins_right, go, settings, table_engine

COMPLETIONS = [[7], [1], [7, 7], [7]]  # "7" is right for one of the tasks, and said twice


def anchored(steps=2, *, answers=None, micro_batch_tokens=8192, **anchors):
    return settings(
        steps=steps,
        micro_batch_tokens=micro_batch_tokens,
        algorithm={"name": "standard", "anchors": {"coefficient": 0.5, **anchors}},
    )


def table_of(engine):
    return engine._table.detach().clone()


def test_right_answers_are_kept_once_with_the_learners_log_probs(tmp_path):
    engine, observer = table_engine(completions=COMPLETIONS), Silent()
    before = torch.log_softmax(table_of(engine), dim=-1)
    go(tmp_path, anchored(1), engine, answers=["7", "3"], observer=observer)
    anchors = load_anchors(tmp_path / "anchors.safetensors", temperature=1.0)
    assert anchors.token_ids.tolist() == [[1, 7, 7, END]]  # prompt "17", answer "7"
    assert anchors.mask.tolist() == [[False, False, True, True]]
    expected = torch.stack([before[2, 7], before[3, END]])
    torch.testing.assert_close(anchors.reference_logprobs[0, 2:], expected)
    assert observer.events == ["1 anchors from 64 x 4 samples: anchors.safetensors"]


def test_the_first_update_feels_nothing_and_the_second_the_divergence(tmp_path):
    held, free = table_engine(completions=COMPLETIONS), table_engine(completions=COMPLETIONS)
    before = torch.log_softmax(table_of(held), dim=-1)
    go(tmp_path / "one", anchored(1), held, answers=["7"])
    go(tmp_path / "free", settings(steps=1), free, answers=["7"])
    assert torch.equal(table_of(held), table_of(free))
    after = torch.log_softmax(table_of(held), dim=-1)
    observer = Silent()
    again = table_engine(completions=COMPLETIONS)
    go(tmp_path / "two", anchored(2), again, answers=["7"], observer=observer)
    # u = policy / untrained at the two anchor tokens; forward: u - 1 - log u; half their mean
    u = torch.stack([(after - before)[2, 7], (after - before)[3, END]]).exp()
    expected = 0.5 * float((u - 1 - u.log()).mean())
    assert observer.steps[0]["policy/anchor_loss"] == 0.0
    assert observer.steps[1]["policy/anchor_loss"] == pytest.approx(expected, rel=1e-3)
    assert observer.steps[1]["policy/anchor_loss"] > 0


def test_cutting_into_micro_batches_changes_nothing(tmp_path):
    tables = []
    for tokens in (1, 8192):
        # a large eps: Adam would blow rounding up to full steps where a gradient is almost 0
        engine = table_engine(completions=[[7], [7, 7], [7, 1], [1]], eps=1.0)
        config = anchored(3, micro_batch_tokens=tokens)
        go(tmp_path / str(tokens), config, engine, answers=["7"], verify=begins_right)
        tables.append(table_of(engine))
        calls = [c.argument.num_sequences for c in engine.calls if c.verb == "forward_backward"]
        assert (max(calls) == 1) == (tokens == 1)
    torch.testing.assert_close(*tables)


def test_anchors_hold_the_policy_to_what_it_could_do(tmp_path):
    gaps = []
    for coefficient in (1e-6, 20.0):
        engine = table_engine()
        config = settings(
            steps=25,
            group_size=8,
            algorithm={
                "name": "standard",
                "anchors": {"coefficient": coefficient, "tasks": 3, "samples": 16},
            },
        )
        go(tmp_path / str(coefficient), config, engine, verify=begins_right, answers=["7"])
        anchors = load_anchors(tmp_path / str(coefficient) / "anchors.safetensors", temperature=1.0)
        now, _ = engine._score(anchors)
        gaps.append(float((now.detach() - anchors.reference_logprobs)[anchors.mask].abs().mean()))
    assert gaps[1] < gaps[0] / 2


def test_a_resumed_run_reads_its_anchors_and_ends_the_same(tmp_path):
    whole, parts = table_engine(), table_engine()
    config = {"answers": ["7", "3"], "verify": begins_right}
    go(tmp_path / "whole", anchored(6, samples=16, per_step=3), whole, **config)
    go(tmp_path / "parts", anchored(3, samples=16, per_step=3), table_engine(), **config)
    go(tmp_path / "parts", anchored(6, samples=16, per_step=3), parts, resume=True, **config)
    assert torch.equal(table_of(whole), table_of(parts))
    (tmp_path / "parts" / "anchors.safetensors").unlink()
    with pytest.raises(CheckpointError, match="expected the anchors that this run was begun with"):
        go(tmp_path / "parts", anchored(9, samples=16, per_step=3), table_engine(), resume=True, **config)


def test_without_a_right_answer_there_is_nothing_to_hold_on_to(tmp_path):
    engine = table_engine(completions=[[1]])
    with pytest.raises(ConfigError, match=r"algorithm\.anchors\.min_outcome = 1\.0.*1 x 4 samples"):
        go(tmp_path, anchored(), engine, answers=["7"])


def test_a_steps_anchors_go_round_and_average_over_their_tokens(tmp_path):
    engine = table_engine(completions=[[7], [7, 7], [7, 1], [7, 2]])
    go(tmp_path, anchored(1), engine, answers=["7"], verify=begins_right)
    anchors = load_anchors(tmp_path / "anchors.safetensors", temperature=1.0)
    lengths = anchors.mask.sum(dim=1).tolist()
    assert lengths == [2, 3, 3, 3]
    rows = [anchors_of(step, anchors, per_step=3) for step in (1, 2, 3)]
    # rows 0 1 2, then 3 0 1, then 2 3 0; kept in order so that a group stays together
    seen = [[int(length) for length in batch.mask.sum(dim=1)] for batch in rows]
    assert seen == [[2, 3, 3], [2, 3, 3], [2, 3, 3]]
    assert [int(batch.token_ids[1, 3]) for batch in rows] == [7, 7, 1]
    assert [float(batch.weights.sum()) for batch in rows] == pytest.approx([1, 1, 1])
    assert anchors_of(9, anchors, per_step=99).num_sequences == 4
