"""`peira train`, `doctor` and `eval` as the shell sees them: what is printed and left behind, exit codes."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from peira.cli.main import main
from peira.errors import ExitCode

SCRIPTED = """\
model: tiny-arith
engine: {kind: scripted, completions: ["so 1", "so 2", "so 3", "so 4"]}
data: {path: tasks.jsonl, duplicates: keep}
verifier: numeric
steps: 3
prompts_per_step: 2
group_size: 4
sampling: {max_tokens: 8}
optimizer: {lr: 0.01}
checkpoint: {every_steps: 1}
"""


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    """A folder with a recipe and forty tasks whose answers are 1, 2, 3 and 4."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.yaml").write_text(SCRIPTED)
    rows = [{"prompt": f"{i} mod 4 + 1 = ?", "answer": str(i % 4 + 1)} for i in range(40)]
    (tmp_path / "tasks.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    return int(caught.value.code or 0)


def test_training_prints_the_plan_and_leaves_a_run(place, capsys):
    assert run("train", "r.yaml", "--name", "first") == ExitCode.DONE
    out = capsys.readouterr().out
    assert "2 prompts x 4 rollouts = 8 rollouts per step, at most 8 x 8 = 64 new tokens" in out
    assert "1 x 1 pass = 1 optimizer step per step, 3 steps = 3 in all" in out
    assert "3 steps x 2 prompts = 6 draws" in out
    assert "numeric x 1" in out
    assert "prompt from `prompt`, answer from `answer`" in out
    assert "ok      verifier numeric: gold 1.00, wrong 0.00" in out
    # one of four canned completions is right for every task, greedy or not: the first, "so 1"
    assert "step 3/3  reward 0.250  collapsed 0%" in out
    last = out.splitlines()[-1]
    assert re.fullmatch(
        r"held-out accuracy: 0\.\d{3} -> 0\.\d{3} \(\d+ questions, \d+\.\d min, run runs/first\)", last
    )
    folder = place / "runs" / "first"
    assert {"config.yaml", "metrics.jsonl", "ledger.jsonl", "checkpoints"} <= {
        p.name for p in folder.iterdir()
    }
    assert len((folder / "metrics.jsonl").read_text().splitlines()) >= 3


def test_a_second_run_on_one_folder_is_refused_and_resume_goes_on(place, capsys):
    assert run("train", "r.yaml", "steps=1") == ExitCode.DONE
    capsys.readouterr()
    assert run("train", "r.yaml") == ExitCode.USAGE
    assert capsys.readouterr().err == (
        "peira: run folder: runs/r: expected no run there; "
        "continue it with --resume, or choose another name=...\n"
    )
    assert run("train", "r.yaml", "--resume") == ExitCode.DONE
    out = capsys.readouterr().out
    assert "resumed from" in out
    assert "step 1/3" not in out
    assert "step 3/3" in out
    assert run("train", "r.yaml", "--resume") == ExitCode.DONE
    assert "nothing left to do: all 3 steps were taken before" in capsys.readouterr().out


def test_a_saved_configuration_is_a_recipe(place, capsys):
    assert run("train", "r.yaml", "steps=1") == ExitCode.DONE
    assert run("train", "runs/r/config.yaml", "name=again") == ExitCode.DONE
    again, first = (place / "runs" / name / "config.yaml" for name in ("again", "r"))
    assert again.read_text().replace("name: again", "name: r") == first.read_text()


def test_dry_run_checks_and_leaves_nothing(place, capsys):
    assert run("train", "r.yaml", "--dry-run") == ExitCode.DONE
    out = capsys.readouterr().out
    for name in ("prompt", "context", "verifier numeric", "memory", "disk", "weight sync", "one completion"):
        assert f"ok      {name}: " in out or f"look    {name}: " in out
    assert out.endswith("ready: peira train with the same arguments\n")
    assert not (place / "runs").exists()


def test_a_verifier_that_prefers_wrong_answers_fails_the_preflight(place, capsys):
    # the answers are words, which `numeric` cannot read: every attempt is unjudged
    rows = [{"prompt": f"Say {word}.", "answer": word} for word in ("one", "two", "three", "four")] * 10
    (place / "tasks.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert run("doctor", "r.yaml") == ExitCode.PREFLIGHT
    out = capsys.readouterr().out
    assert "FAILED  verifier numeric: judges nothing: error: " in out
    assert "weights: not loaded, since a check failed" in out
    assert out.endswith("not ready: verifier numeric\n")
    assert run("train", "r.yaml") == ExitCode.PREFLIGHT
    assert "peira: pre-flight: verifier numeric; nothing was trained" in capsys.readouterr().err
    assert not (place / "runs").exists()


def test_missing_answers_fail_the_preflight_by_name(place, capsys):
    rows = [{"prompt": "1 + 1 = ?", "answer": "2", "id": "a"}, {"prompt": "2 + 2 = ?", "id": "no-answer"}]
    more = [{"prompt": f"{i} + 0 = ?", "answer": str(i), "id": str(i)} for i in range(20)]
    (place / "tasks.jsonl").write_text("\n".join(map(json.dumps, [*rows, *more])))
    code = run("doctor", "r.yaml")
    out = capsys.readouterr().out
    assert code == ExitCode.PREFLIGHT
    assert "FAILED  verifier numeric: 1 of 22 tasks have no answer to compare with, first 'no-answer'" in out


def test_a_function_that_is_not_there_is_refused_and_one_that_raises_fails_the_preflight(place, capsys):
    assert run("train", "r.yaml", "verifier=reward.py:score") == ExitCode.USAGE
    assert "there is no file reward.py" in capsys.readouterr().err
    (place / "reward.py").write_text("def score(completion, answer):\n    raise RuntimeError('no luck')\n")
    assert run("train", "r.yaml", "verifier=reward.py:score") == ExitCode.PREFLIGHT
    assert "no luck" in capsys.readouterr().out
    (place / "reward.py").write_text("def score(completion, answer):\n    return answer in completion\n")
    assert run("train", "r.yaml", "--dry-run", "verifier=reward.py:score") == ExitCode.DONE
    assert "ok      verifier function: gold 1.00" in capsys.readouterr().out


def test_show_prints_settings_that_load_again(place, capsys):
    assert run("doctor", "r.yaml", "--show", "steps=7") == ExitCode.DONE
    text = capsys.readouterr().out
    assert "steps: 7  # Turns of the loop: sample, judge, learn.\n" in text
    (place / "shown.yaml").write_text(text)
    assert run("doctor", "shown.yaml", "--show") == ExitCode.DONE
    assert capsys.readouterr().out == text


def test_a_prompt_longer_than_the_context_is_refused_before_weights_load(place, capsys):
    rows = [{"prompt": "x" * 900, "answer": "1", "id": "long"}, *({"prompt": "y", "answer": "1"},) * 3]
    (place / "tasks.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert run("train", "r.yaml") == ExitCode.USAGE
    assert "long" in capsys.readouterr().err
    assert run("train", "r.yaml", "sampling.max_tokens=512") == ExitCode.USAGE
    assert "expected fewer than the model's context of 512 tokens" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("model=no/such/folder/here", "no/such/folder/here"),
        ("data.path=taks.jsonl", "tasks.jsonl"),
        ("data.path=reasoning_gym:chain_summ", "chain_sum"),
        ("verifiers.0.pattern=x", "verifiers.0.pattern = 'x': expected a setting of verifiers.0"),
        ("engine.device=tpu", "engine.device"),
        ("data.max_prompt_tokens=9999", "data.max_prompt_tokens = 9999: expected at most 504"),
        ("logging.wandb=project", "wandb"),
    ],
)
def test_what_does_not_exist_is_named_in_one_line(place, capsys, override, said):
    assert run("train", "r.yaml", override) == ExitCode.USAGE
    err = capsys.readouterr().err
    assert said in err
    assert err.startswith("peira: ")
    assert "Traceback" not in err


def test_eval_prints_a_table_and_writes_json(place, capsys):
    assert run("eval", "r.yaml", "--samples", "4", "--k", "1,4", "--json", "out.json") == ExitCode.DONE
    out = capsys.readouterr().out
    lines = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line[:1].isalpha()}
    record = json.loads((place / "out.json").read_text())
    questions = record["num_questions"]
    # the four canned completions cover every answer: one of four is right, so pass@1 = 1/4 and pass@4 = 1
    assert lines["pass_at_1"][0] == "0.250"
    assert lines["pass_at_4"][0] == "1.000"
    assert record["estimates"]["pass_at_4"]["value"] == 1.0
    assert len(record["questions"]) == questions
    assert record["num_completions"] == questions * 5


def test_eval_writes_json_alone_to_standard_output(place, capsys):
    assert run("eval", "r.yaml", "--json", "-", "--questions", "2") == ExitCode.DONE
    captured = capsys.readouterr()
    assert json.loads(captured.out)["num_questions"] == 2
    assert "accuracy" in captured.err


def test_invariance_compares_cuts_and_gives_a_verdict(place, capsys):
    small = ["engine=local", "prompts_per_step=2", "group_size=3", "micro_batch_tokens=64"]
    assert run("doctor", "r.yaml", "--invariance", *small) == ExitCode.DONE
    out = capsys.readouterr().out
    assert out.splitlines()[0].startswith("6 sequences, ")
    for cut in ("whole batch", "in two", "in four", "micro_batch_tokens=64", "sequence by sequence"):
        assert f"\n{cut} " in out
        assert f"\nprompts not shared, {cut} " in out
    assert "the same gradient under every cut" in out


def test_invariance_uses_the_verifiers_advantages_where_there_is_a_signal(place, capsys):
    # one of the four canned completions is right for each task
    assert run("doctor", "r.yaml", "--invariance") == ExitCode.DONE
    out = capsys.readouterr().out
    assert "advantages of the verifiers" in out.splitlines()[0]
    assert re.search(r"\nsequence by sequence +8 ", out)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_saves_exits_130_and_goes_on(place, number):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "peira.cli.main", "train", "r.yaml", "steps=100000"]
    process = subprocess.Popen(
        [*command, "checkpoint.every_steps=0", "evaluation.before=false"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    metrics = place / "runs" / "r" / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while not (metrics.exists() and metrics.stat().st_size):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "no step within two minutes"
        time.sleep(0.1)
    process.send_signal(number)
    _, err = process.communicate(timeout=120)
    assert process.returncode == ExitCode.INTERRUPTED, err
    assert "peira: interrupted after" in err
    assert "--resume" in err
    assert "Traceback" not in err
    taken = int(err.partition("interrupted after ")[2].split()[0])
    done = subprocess.run(
        [*command[:-1], f"steps={taken + 1}", "checkpoint.every_steps=0", "--resume"],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == ExitCode.DONE, done.stderr
    assert f"{taken} of {taken + 1} steps taken, 1 to go" in done.stdout
