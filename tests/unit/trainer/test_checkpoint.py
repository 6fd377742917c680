"""Checkpoints are whole or not at all."""

import asyncio
import errno
import json

import pytest

from peira.errors import CheckpointError, RunError
from peira.trainer.checkpoint import (
    checkpoints,
    discard_after,
    latest_checkpoint,
    load_checkpoint,
    prune_checkpoints,
    save_checkpoint,
)
from peira.trainer.state import TrainerState, trace_fingerprint
from tests.unit.trainer.line import settings


class FolderEngine:
    """Only what a checkpoint asks of an engine: files in a folder."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    async def save(self, path):
        (path / "model.safetensors").write_bytes(b"weights")
        if self.error is not None:
            raise self.error


def save(folder, step, *, accuracy=None, fingerprint="f", error=None):
    state = TrainerState(step=step, accuracy=accuracy)
    return asyncio.run(save_checkpoint(folder, FolderEngine(error), state, fingerprint=fingerprint))


def test_a_checkpoint_comes_back_as_it_was_written(tmp_path):
    save(tmp_path, 20)
    found, damaged = latest_checkpoint(tmp_path, fingerprint="f")
    assert found is not None
    assert found.state == TrainerState(step=20)
    assert damaged == []
    assert (tmp_path / "latest").read_text() == "step-20\n"


def test_a_full_disk_leaves_the_earlier_checkpoint_and_no_partial_one(tmp_path):
    save(tmp_path, 10)
    with pytest.raises(RunError, match=r"step-20: checkpoint not written: the disk is full"):
        save(tmp_path, 20, error=OSError(errno.ENOSPC, "No space left on device"))
    assert [path.name for path in checkpoints(tmp_path)] == ["step-10"]
    assert list(tmp_path.glob(".step-*")) == []
    assert (tmp_path / "latest").read_text() == "step-10\n"


def test_a_partial_folder_of_a_killed_process_is_never_read_and_swept_away(tmp_path):
    (tmp_path / ".step-10.partial").mkdir(parents=True)
    assert latest_checkpoint(tmp_path, fingerprint="f") == (None, [])
    save(tmp_path, 20)
    assert not (tmp_path / ".step-10.partial").exists()


def test_a_damaged_checkpoint_is_passed_over_and_named(tmp_path):
    save(tmp_path, 10)
    (save(tmp_path, 20) / "model.safetensors").write_bytes(b"weighTs")
    found, damaged = latest_checkpoint(tmp_path, fingerprint="f")
    assert found is not None
    assert found.state.step == 10
    assert "step-20/model.safetensors: differs from its SHA-256" in damaged[0]


def test_a_missing_file_is_named(tmp_path):
    path = save(tmp_path, 20)
    (path / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"model.safetensors: missing"):
        load_checkpoint(path, fingerprint="f")


def test_when_none_can_be_used_that_is_said_rather_than_starting_over(tmp_path):
    (save(tmp_path, 20) / "manifest.json").write_text("{")
    with pytest.raises(CheckpointError, match="no checkpoint can be used"):
        latest_checkpoint(tmp_path, fingerprint="f")


def test_other_settings_are_refused(tmp_path):
    save(tmp_path, 20, fingerprint="f")
    with pytest.raises(CheckpointError, match="written under other settings"):
        latest_checkpoint(tmp_path, fingerprint="g")


def test_a_bare_model_folder_is_no_checkpoint(tmp_path):
    with pytest.raises(CheckpointError, match=r"no manifest\.json"):
        load_checkpoint(tmp_path, fingerprint=None)


def test_retention_keeps_the_newest_and_the_best(tmp_path):
    for step, accuracy in [(10, 0.9), (20, 0.2), (30, 0.5), (40, None)]:
        save(tmp_path, step, accuracy=accuracy)
    gone = prune_checkpoints(tmp_path, keep_last=1, keep_best=1)
    assert [path.name for path in gone] == ["step-20", "step-30"]
    assert [path.name for path in checkpoints(tmp_path)] == ["step-10", "step-40"]


def test_steps_are_ordered_as_numbers(tmp_path):
    for step in (9, 10):
        save(tmp_path, step)
    assert [path.name for path in checkpoints(tmp_path)] == ["step-9", "step-10"]


def test_resuming_from_an_earlier_step_discards_the_later_ones(tmp_path):
    for step in (10, 20, 30):
        save(tmp_path, step)
    discard_after(tmp_path, 10)
    assert [path.name for path in checkpoints(tmp_path)] == ["step-10"]


def test_the_manifest_lists_every_file_but_itself(tmp_path):
    path = save(tmp_path, 20)
    assert sorted(json.loads((path / "manifest.json").read_text())["files"]) == [
        "model.safetensors",
        "trainer.json",
    ]


def test_a_setting_at_its_default_leaves_the_fingerprint_alone_and_any_other_does_not():
    plain = trace_fingerprint(settings())
    assert plain == trace_fingerprint(settings(seed=0, updates_per_step=1))
    assert plain == trace_fingerprint(settings(steps=9, name="other", stop={"collapse_patience": 3}))
    assert plain != trace_fingerprint(settings(seed=1))
    assert plain != trace_fingerprint(settings(optimizer={"lr": 0.2}))
    assert plain != trace_fingerprint(settings(verifiers=["math"]))  # kinds with nothing but defaults
    falling = {"lr": 0.1, "schedule": "linear"}
    short, long = settings(optimizer=falling), settings(optimizer=falling, steps=9)
    assert trace_fingerprint(short) != trace_fingerprint(long)
