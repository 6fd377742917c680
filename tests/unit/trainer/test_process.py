"""Process supervision in the loop: scores of steps on the tokens of those steps."""

import pytest

from peira.errors import VerifierError
from peira.runs.reader import RunReader
from peira.types.verdict import Verdict
from tests.unit.trainer.line import go, settings, table_engine

# "0" ends a step. "102": steps "10" and "2", tokens 1 0 | 2 END; "77": one step, tokens 7 7 END
COMPLETIONS = [[1, 0, 2], [7, 7]]
SCORES = {"102": (1.0, 0.0), "77": (1.0,)}


def supervised(**algorithm):
    process = {"verifier": "exact", "separator": "0", **algorithm.pop("process", {})}
    return settings(
        steps=1,
        prompts_per_step=1,
        group_size=2,
        sampling={"max_tokens": 4},
        algorithm={"name": "standard", "process": process, **algorithm},
    )


def trained(folder, config, score=lambda text: float(text == "77")):
    def verify(task, attempt):
        return Verdict(score=score(attempt.text), step_scores=SCORES[attempt.text])

    engine = table_engine(completions=COMPLETIONS)
    go(folder, config, engine, answers=["7"], verify=verify)
    batches = [call.argument for call in engine.calls if call.verb == "forward_backward"]
    return [batch.advantages[row][batch.mask[row]].tolist() for batch in batches for row in range(2)]


def test_steps_alone(tmp_path):
    first, second = trained(tmp_path, supervised(advantage="steps"))
    # step scores 1, 0, 1 have mean 2/3: 1/3, -2/3 and 1/3; a token gets all steps that end at it or later
    assert first == pytest.approx([-1 / 3, -1 / 3, -2 / 3, -2 / 3])
    assert second == pytest.approx([1 / 3, 1 / 3, 1 / 3])
    (group,) = RunReader(tmp_path).rollouts(1)
    assert group.advantages == pytest.approx((-1 / 2, 1 / 3))


def test_steps_on_top_of_the_outcome_each_to_its_own(tmp_path):
    config = supervised(process={"reach": "own", "coefficient": 3.0})
    first, second = trained(tmp_path, config)
    # outcomes 0 and 1: -1/2 and 1/2; three times 1/3, -2/3 and 1/3
    assert first == pytest.approx([-1 / 2 + 1, -1 / 2 + 1, -1 / 2 - 2, -1 / 2 - 2])
    assert second == pytest.approx([3 / 2, 3 / 2, 3 / 2])


def test_a_group_with_one_outcome_still_learns_from_its_steps(tmp_path):
    assert len(trained(tmp_path, supervised(), score=lambda text: 1.0)) == 2
    total = RunReader(tmp_path).ledger().total
    assert (total.trained.rollouts, total.dropped_total.rollouts) == (2, 0)


def test_another_number_of_scores_than_steps_is_the_verifiers_fault(tmp_path):
    config = supervised(process={"separator": "7"})
    with pytest.raises(
        VerifierError, match=r"verifiers: exact: step_scores = 2 of them: expected one for each"
    ):
        trained(tmp_path, config)
