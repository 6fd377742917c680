"""kill -9 at any point, resume: the loss trace is that of the run nobody killed, bit for bit."""

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from peira.runs.reader import RunReader
from tests.integration.conftest import trace

COMMAND = [sys.executable, "-m", "peira.cli.main", "train"]


def run(recipe: Path, *arguments: str, timeout: float = 240) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, str(recipe), *arguments], capture_output=True, text=True, timeout=timeout, check=False
    )


def rollouts(folder: Path) -> dict[str, str]:
    """Digest of every rollout file: prompts, completions, log-probs, rewards, advantages."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted((folder / "rollouts").glob("*.jsonl"))
    }


def weights(folder: Path, step: int) -> str:
    path = folder / "checkpoints" / f"step-{step}" / "model.safetensors"
    return hashlib.sha256(path.read_bytes()).hexdigest()


def kill_after(recipe: Path, seconds: float, *arguments: str) -> int | None:
    """Start, wait, kill -9; None when it had ended by itself."""
    process = subprocess.Popen(
        [*COMMAND, str(recipe), *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        process.wait(timeout=seconds)
        return None
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # its verifier workers too: nobody is left to finish anything
        return process.wait()


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_twelve_kills_at_random_points_leave_no_trace(write_recipe, tmp_path):
    recipe = write_recipe(steps=10)
    whole = run(recipe, "name=whole")
    assert whole.returncode == 0, whole.stderr
    # Time from start to end, so that the kills fall into start-up, sampling, learning, saving alike.
    started = time.monotonic()
    assert run(recipe, "name=timed").returncode == 0
    duration = time.monotonic() - started

    chance = random.Random(7)
    kills = 0
    while kills < 12:
        if kill_after(recipe, chance.uniform(0.2, 0.9) * duration, "name=killed", "--resume") is None:
            # It finished before it was killed: begin again under the same name, with the folder gone.
            subprocess.run(["rm", "-rf", str(tmp_path / "runs" / "killed")], check=True)
            continue
        kills += 1
    last = run(recipe, "name=killed", "--resume")
    assert last.returncode == 0, last.stderr

    runs = tmp_path / "runs"
    assert trace(runs / "killed") == trace(runs / "whole")
    assert rollouts(runs / "killed") == rollouts(runs / "whole")
    assert weights(runs / "killed", 10) == weights(runs / "whole", 10)
    RunReader(runs / "killed").ledger().check()


def test_an_interrupted_run_saves_says_so_and_continues_exactly(write_recipe, tmp_path):
    recipe = write_recipe(steps=4, checkpoint={"every_steps": 0})
    assert run(recipe, "name=whole").returncode == 0
    process = subprocess.Popen(
        [*COMMAND, str(recipe), "name=stopped"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    metrics = tmp_path / "runs" / "stopped" / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (metrics.exists() and metrics.read_text().count("\n")):
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    if process.returncode == 0:
        pytest.fail("the run ended before the signal reached it; make it longer")
    assert process.returncode == 130, errors
    assert "continue with --resume" in errors

    again = run(recipe, "name=stopped", "--resume")
    assert again.returncode == 0, again.stderr
    assert trace(tmp_path / "runs" / "stopped") == trace(tmp_path / "runs" / "whole")


def test_a_finished_run_resumed_does_nothing_and_says_so(write_recipe):
    recipe = write_recipe(steps=1)
    assert run(recipe).returncode == 0
    again = run(recipe, "--resume")
    assert again.returncode == 0
    assert "nothing left to do" in again.stdout


def test_a_second_run_on_one_folder_is_refused(write_recipe):
    recipe = write_recipe(steps=1)
    assert run(recipe).returncode == 0
    again = run(recipe)
    assert again.returncode == 2
    assert "--resume" in again.stderr


def test_a_resumed_run_may_not_change_what_decides_the_trace(write_recipe):
    recipe = write_recipe(steps=2)
    assert run(recipe, "steps=2").returncode == 0
    other = run(recipe, "steps=4", "optimizer.lr=0.01", "--resume")
    assert other.returncode == 2
    assert "optimizer.lr = 0.01 (was 0.0001)" in other.stderr
    longer = run(recipe, "steps=3", "--resume")
    assert longer.returncode == 0, longer.stderr
