"""What is recorded of a machine, and what is not."""

import subprocess
from pathlib import Path

import pytest

from peira.runs.environment import environment, git_commit
from peira.runs.jsonl import dumps


def test_no_variable_outside_the_list_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret-token")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    found = environment({"device": "cpu"})
    assert b"secret-token" not in dumps(found)
    assert found["variables"]["OMP_NUM_THREADS"] == "3"
    assert found["device"] == "cpu"
    assert found["packages"]["filelock"]


def test_a_folder_outside_any_repository_has_no_commit(tmp_path: Path) -> None:
    assert git_commit(tmp_path) is None


def test_a_changed_file_is_seen_beside_the_commit(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        settings = ("-c", "user.name=a", "-c", "user.email=a@b")
        done = subprocess.run(
            ["git", "-C", str(tmp_path), *settings, *words], check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    git("init", "-q")
    (tmp_path / "a").write_text("1")
    git("add", "a")
    git("commit", "-q", "-m", "one")
    head = git("rev-parse", "HEAD")
    assert git_commit(tmp_path) == {"commit": head, "changed": False}
    (tmp_path / "a").write_text("2")
    assert git_commit(tmp_path) == {"commit": head, "changed": True}
