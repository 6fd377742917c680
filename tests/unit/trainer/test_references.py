"""Several references at once."""

import pytest
import torch

from tests.unit.trainer.line import END, Silent, go, settings, table_engine

COMPLETIONS = [[7], [1], [3], [5]]


def pulled(*coefficients):
    first, *rest = coefficients
    others = [{"model": f"model-{i}", "coefficient": c} for i, c in enumerate(rest)]
    return settings(steps=1, algorithm={"name": "standard", "kl": {"coefficient": first, "others": others}})


def run(folder, config, others):
    engine, observer = table_engine(completions=COMPLETIONS, eps=1.0), Silent()
    changed = {"other_references": tuple(others)}
    go(
        folder,
        config,
        engine,
        reference=table_engine(seed=5),
        observer=observer,
        changed=changed,
        answers=["7"],
    )
    return engine._table.detach().clone(), observer.steps[0]


def test_each_is_asked_once_per_batch_and_watched_by_its_number(tmp_path):
    others = [table_engine(seed=1), table_engine(seed=2)]
    before = torch.log_softmax(table_engine()._table.detach(), dim=-1)
    _, step = run(tmp_path, pulled(0.1, 0.2, 0.3), others)
    for number, other in enumerate(others, start=1):
        assert [call.verb for call in other.calls] == ["logprobs"]
        theirs = torch.log_softmax(other._table.detach(), dim=-1)
        # tokens of the completions at positions 2 and 3, behind the prompt "17"
        gaps = [(theirs - before)[2, token] for token in (7, 1, 3, 5)] + [(theirs - before)[3, END]] * 4
        expected = sum(float(gap.exp() - 1 - gap) for gap in gaps) / 8
        assert step[f"policy/kl_other_k3/{number}"] == pytest.approx(expected, rel=1e-4)


def test_penalties_add_up(tmp_path):
    twin = [table_engine(seed=5)]  # the reference once more: .1 + .2 to one is .3 to the same
    both, _ = run(tmp_path / "both", pulled(0.1, 0.2), twin)
    one, _ = run(tmp_path / "one", pulled(0.3), [])
    torch.testing.assert_close(both, one)
    less, _ = run(tmp_path / "less", pulled(0.1), [])
    assert not torch.equal(both, less)
