"""Folders in every state that a person may point a reader at."""

from pathlib import Path

import pytest

from peira.errors import RunError
from peira.runs.evaluation import Estimate, EvalRecord
from peira.runs.reader import RunReader, RunState
from peira.runs.writer import RunWriter


def test_no_folder_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"none: expected a folder that `peira train` wrote"):
        RunReader(tmp_path / "none")


def test_an_empty_folder_reads_as_empty(tmp_path: Path) -> None:
    reader = RunReader(tmp_path)
    assert reader.ending().state is RunState.EMPTY
    assert (reader.metrics(), reader.evals(), reader.rollout_steps(), reader.events()) == ([], [], [], [])
    assert reader.config_text() == ""
    assert reader.environment() == {}
    reader.ledger().check()


def test_a_folder_with_nothing_but_evaluations_reads(tmp_path: Path) -> None:
    record = EvalRecord(
        step=0,
        policy_version=0,
        headline="pass_at_1",
        estimates={"pass_at_1": Estimate(value=0.5, low=0.4, high=0.6, num_questions=10)},
        num_questions=10,
        num_completions=80,
    )
    with RunWriter.create(tmp_path, "model: x") as run:
        run.write_eval(record)
    reader = RunReader(tmp_path)
    assert reader.evals() == [record]
    assert reader.metrics() == []


def test_a_headline_that_was_not_estimated_is_refused() -> None:
    with pytest.raises(RunError, match="headline = 'accuracy': expected one of"):
        EvalRecord(
            step=0, policy_version=0, headline="accuracy", estimates={}, num_questions=0, num_completions=0
        )


def test_an_evaluation_of_another_shape_is_refused(tmp_path: Path) -> None:
    (tmp_path / "evals").mkdir()
    (tmp_path / "evals" / "step-000000.json").write_text('{"accuracy": 0.5}\n')
    with pytest.raises(RunError, match="expected the shape"):
        RunReader(tmp_path).evals()


def test_files_with_other_names_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "rollouts").mkdir()
    for name in (
        "step-000003.jsonl",
        "step-3.jsonl",
        "notes.txt",
        ".step-000004.jsonl.1.part",
        "step-x.jsonl",
    ):
        (tmp_path / "rollouts" / name).write_text("")
    assert RunReader(tmp_path).rollout_steps() == [3]


def test_a_folder_that_is_no_run_is_refused_and_the_run_around_or_inside_is_named(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "mine"
    (run / "checkpoints" / "step-2").mkdir(parents=True)
    (run / "checkpoints" / "step-2" / "config.json").write_text("{}")
    (run / "events.jsonl").write_text("")
    for place in (run.parent, run / "checkpoints", run / "checkpoints" / "step-2"):
        with pytest.raises(
            RunError, match=r"expected a folder that `peira train` wrote; did you mean .*mine\?"
        ):
            RunReader(place)
    RunReader(run)
