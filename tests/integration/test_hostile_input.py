"""What a stranger may do wrong: each ends in one message, the right exit code, and nothing lost."""

import io
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


def test_a_run_of_another_version_is_refused_as_such(place, capsys):
    assert run("train", "r.yaml") == ExitCode.DONE
    manifest = place / "runs" / "r" / "checkpoints" / "step-1" / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "fingerprint": "of other settings"}))
    assert run("train", "r.yaml", "--resume", "steps=2") == ExitCode.USAGE
    assert "runs/r: settings of another version of peira: expected those" in capsys.readouterr().err


def test_fewer_steps_than_were_taken_leave_none_to_go(place, capsys):
    assert run("train", "r.yaml", "steps=2") == ExitCode.DONE
    assert run("train", "r.yaml", "--resume", "steps=1") == ExitCode.DONE
    assert "2 of 1 steps taken, 0 to go" in capsys.readouterr().out


def test_records_that_something_else_removed_are_missed_aloud(place, capsys):
    assert run("train", "r.yaml") == ExitCode.DONE
    (place / "runs" / "r" / "ledger.jsonl").unlink()
    assert run("train", "r.yaml", "--resume", "steps=2") == ExitCode.DONE
    assert "metrics or ledger end before the checkpoint's step 1" in capsys.readouterr().out


# ---------------------------------------------------------------- places


@pytest.mark.parametrize("target", ["file.txt/out.json", "."])
def test_a_measurement_is_not_made_when_its_file_cannot_be_written(place, capsys, target):
    (place / "file.txt").write_text("")
    assert run("eval", "r.yaml", "--json", target) == ExitCode.USAGE
    captured = capsys.readouterr()
    assert captured.err == f"peira: command line: --json = {target!r}: expected a file that can be written\n"
    assert "questions" not in captured.out


@pytest.mark.parametrize("target", [".", "r.yaml/x.html"])
def test_a_report_that_cannot_be_written_is_one_error(place, capsys, target):
    assert run("train", "r.yaml") == ExitCode.DONE
    capsys.readouterr()
    assert run("report", "runs/r", "--out", target) == ExitCode.USAGE
    assert capsys.readouterr().err.startswith(f"peira: {target}: ")


def test_a_tilde_is_the_home_folder(place, monkeypatch):
    monkeypatch.setenv("HOME", str(place / "home"))
    assert run("train", "r.yaml", "runs_dir=~/runs") == ExitCode.DONE
    assert (place / "home" / "runs" / "r" / "metrics.jsonl").exists()
    assert not (place / "~").exists()


def test_a_measurement_makes_the_folder_of_its_file(place):
    assert run("eval", "r.yaml", "--json", "new/folder/out.json", "--questions", "2") == ExitCode.DONE
    assert json.loads(Path("new/folder/out.json").read_text())["num_questions"] == 2


def test_what_is_no_run_gets_no_report_and_the_run_is_named(place, capsys):
    assert run("train", "r.yaml") == ExitCode.DONE
    capsys.readouterr()
    for folder in ("runs", "runs/r/checkpoints/step-1", "."):
        assert run("report", folder) == ExitCode.USAGE
        assert capsys.readouterr().err.startswith(f"peira: run folder: {folder}: expected a folder that")
        assert run("verify", "--run", folder) == ExitCode.USAGE
        assert "expected a folder that `peira train` wrote" in capsys.readouterr().err
    assert not list(place.rglob("report.html"))


def test_a_run_in_the_place_of_a_model_is_answered_with_its_newest_checkpoint(place, capsys):
    for step in (2, 9, 10):
        folder = place / "runs" / "r" / "checkpoints" / f"step-{step}"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
    (folder.parent / "latest").write_text("step-10")
    for wrong in ("runs/r", "runs/r/checkpoints", "runs/r/checkpoints/latest"):
        assert run("eval", "r.yaml", f"model={wrong}") == ExitCode.USAGE
        assert "did you mean 'runs/r/checkpoints/step-10'?" in capsys.readouterr().err


# ---------------------------------------------------------------- the command line


def test_a_setting_written_as_an_option_is_told_how_settings_are_written(place, capsys):
    assert run("train", "r.yaml", "--max-tokens=3") == ExitCode.USAGE
    assert (
        "No such option: --max-tokens; settings have no dashes: max_tokens=VALUE" in capsys.readouterr().err
    )
    assert run("models", "--steps") == ExitCode.USAGE
    assert "settings" not in capsys.readouterr().err


def test_judging_without_a_reference_says_which_option_is_missing(place, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"42")))
    assert run("verify", "--verifier", "numeric") == ExitCode.VERIFIER
    captured = capsys.readouterr()
    assert json.loads(captured.out)["status"] == "error"
    assert captured.err == "peira verify: no reference answer was given: add --answer ANSWER\n"


def test_nothing_to_judge_is_no_success(place, capsys):
    Path("nothing.jsonl").write_text("\n")
    assert run("verify", "--verifier", "numeric", "--file", "nothing.jsonl") == ExitCode.USAGE
    assert capsys.readouterr().err == "peira: nothing.jsonl: no rows: expected at least one\n"
    assert run("train", "r.yaml", "logging.rollouts=false") == ExitCode.DONE
    assert run("verify", "--run", "runs/r") == ExitCode.USAGE
    assert "expected rollouts to judge, found none" in capsys.readouterr().err


# ---------------------------------------------------------------- settings that do not fit


@pytest.mark.parametrize(
    ("override", "said"),
    [
        (
            "sampling.stop_token_ids=[262]",
            "sampling.stop_token_ids.0 = 262: expected an id of the tokenizer, 0 to 261",
        ),
        ("sampling.stop_token_ids=[-1]", "sampling.stop_token_ids.0 = -1: expected an id of the tokenizer"),
        ('sampling.stop_strings=[""]', "command line: sampling.stop_strings.0 = '': expected some text"),
        ("data.prompt_template={a}+{b}=", "data.prompt_template=null shows prompts as they are"),
    ],
)
def test_settings_that_do_not_fit_are_refused_with_a_way_out(place, capsys, override, said):
    assert run("train", "r.yaml", override) == ExitCode.USAGE
    assert said in capsys.readouterr().err


def test_one_row_trains_and_says_that_nothing_is_measured(place, capsys):
    write_tasks([{"prompt": "What is 12 * 12?", "answer": "144"}])
    assert run("train", "r.yaml", "evaluation.before=true") == ExitCode.DONE
    out = capsys.readouterr().out
    assert "look    held-out tasks: no task is held out, so nothing will be measured" in out
