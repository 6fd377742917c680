"""A disk that really fills up while a run is under way."""

import shutil
import subprocess
import threading
import time
from pathlib import Path

import pytest

from peira.runs.reader import RunReader
from tests.integration.conftest import trace
from tests.integration.test_resume import run

MEGABYTE = 2**20


@pytest.fixture
def small_disk(tmp_path: Path):
    """A file system of 40 MB; a checkpoint of the miniature takes 6."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", str(disk)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip(f"needs the right to mount a tmpfs: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def fill_once(exists: Path, ballast: Path, *, leave: int) -> None:
    """As somebody else's job would: once this exists, take all the space but so many bytes."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not exists.exists():
        time.sleep(0.01)
    free = shutil.disk_usage(ballast.parent).free
    ballast.write_bytes(bytes(max(0, free - leave)))


@pytest.mark.slow
def test_a_disk_that_fills_up_ends_the_run_by_name_and_loses_nothing(write_recipe, small_disk, tmp_path):
    recipe = write_recipe(steps=6, checkpoint={"every_steps": 2, "keep_last": 3})
    folder, ballast = small_disk / "tiny", small_disk / "ballast"
    neighbour = threading.Thread(
        target=fill_once, args=(folder / "checkpoints" / "step-2", ballast), kwargs={"leave": 3 * MEGABYTE}
    )
    neighbour.start()
    full = run(recipe, f"runs_dir={small_disk}")
    neighbour.join()
    assert full.returncode == 2, full.stdout + full.stderr
    assert "Traceback" not in full.stderr
    assert "checkpoint not written: the disk is full" in full.stderr
    assert [p.name for p in (folder / "checkpoints").glob("step-*")] == ["step-2"]
    assert list((folder / "checkpoints").glob(".step-*")) == []
    RunReader(folder).ledger().check()

    ballast.unlink()
    again = run(recipe, f"runs_dir={small_disk}", "--resume")
    assert again.returncode == 0, again.stderr
    assert run(recipe, "name=whole").returncode == 0
    assert trace(folder) == trace(tmp_path / "runs" / "whole")
