"""What a stranger may do wrong: each ends in one message, the right exit code, and nothing lost."""

import json
from pathlib import Path

import pytest
import yaml

from peira.cli.main import main
from peira.errors import ExitCode

RECIPE = """\
model: tiny-arith
engine: {kind: scripted, completions: ["so 1", "so 2", "so 3", "so 4"]}
data: {path: tasks.jsonl, duplicates: keep}
verifier: numeric
steps: 1
prompts_per_step: 2
group_size: 4
sampling: {max_tokens: 8}
optimizer: {lr: 0.01}
evaluation: {before: false, after: false}
logging: {tensorboard: false}
"""


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    """A folder with a recipe and forty tasks whose answers are 1, 2, 3 and 4."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.yaml").write_text(RECIPE)
    write_tasks({"prompt": f"{i} mod 4 + 1 = ?", "answer": str(i % 4 + 1)} for i in range(40))
    return tmp_path


def write_tasks(rows) -> None:
    Path("tasks.jsonl").write_text("\n".join(map(json.dumps, rows)))


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    return int(caught.value.code or 0)


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


# ---------------------------------------------------------------- resuming


def test_a_refused_resume_names_the_settings_and_leaves_the_run_as_it_was(place, capsys):
    assert run("train", "r.yaml") == ExitCode.DONE
    before = files(place / "runs" / "r")
    capsys.readouterr()
    changes = ("optimizer.lr=0.5", "group_size=2", "steps=3")
    assert run("train", "r.yaml", "--resume", *changes) == ExitCode.USAGE
    err = capsys.readouterr().err
    assert "group_size = 2 (was 4), optimizer.lr = 0.5 (was 0.01): expected" in err
    assert "steps = 3" not in err  # how long a run is may change
    assert files(place / "runs" / "r") == before
    assert yaml.safe_load(before["config.yaml"])["optimizer"]["lr"] == 0.01


def test_fewer_steps_than_were_taken_leave_none_to_go(place, capsys):
    assert run("train", "r.yaml", "steps=2") == ExitCode.DONE
    assert run("train", "r.yaml", "--resume", "steps=1") == ExitCode.DONE
    assert "2 of 1 steps taken, 0 to go" in capsys.readouterr().out
