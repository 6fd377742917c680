"""`peira verify` from the shell: JSON lines out, exit codes that scripts can rely on."""

import io
import json
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from peira.cli.main import main


def verify(*arguments, given="", cwd="."):
    """Exit code, lines of standard output, and standard error of one call."""
    out, told = io.StringIO(), io.StringIO()
    stdin, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(given.encode()))
    try:
        with redirect_stdout(out), redirect_stderr(told), chdir(cwd), pytest.raises(SystemExit) as left:
            main(["verify", *map(str, arguments)])
    finally:
        sys.stdin = stdin
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    return left.value.code, lines, told.getvalue()


def test_the_shell_sees_the_line_and_the_exit_code():
    done = subprocess.run(
        [sys.executable, "-m", "peira.cli.main", "verify", "--answer", "0.5"],
        input=rb"so \boxed{1/3}",
        capture_output=True,
        timeout=120,
    )
    assert done.returncode == 1
    assert json.loads(done.stdout)["score"] == 0.0


@pytest.mark.parametrize(
    ("arguments", "given", "code", "score"),
    [
        (["--verifier", "math", "--answer", "0.5"], r"so \boxed{1/2}", 0, 1.0),
        (["--answer", "0.5"], r"so \boxed{1/3}", 1, 0.0),
        (["-v", "numeric", "-a", "5"], "it is 5", 0, 1.0),
        (["-v", "numeric", "-a", "5", "extract=whole"], "it is 5", 1, 0.0),
        (["-v", "math"], r"\boxed{5}", 6, None),
        (["-v", "format", "pattern=a.*"], "abc", 0, 1.0),
        (["-v", "numeric", "-a", "95"], "", 1, 0.0),
    ],
)
def test_one_answer_is_one_line_and_one_exit_code(arguments, given, code, score):
    returned, lines, _ = verify(*arguments, given=given)
    assert (returned, len(lines), lines[0]["score"]) == (code, 1, score)


def test_a_function_of_the_users_judges(tmp_path):
    (tmp_path / "mine.py").write_text("def f(completion, answer): return completion.count(answer) / 2\n")
    assert verify("-v", "mine.py:f", "-a", "a", given="ab", cwd=tmp_path)[1][0]["score"] == 0.5
    code, lines, _ = verify("-v", "mine.py:f", "-a", "a", given="aaaa", cwd=tmp_path)
    assert code == 6
    assert "set `range: [low, high]`" in lines[0]["detail"]


def test_a_verifier_that_hangs_is_killed_at_the_limit(tmp_path):
    (tmp_path / "mine.py").write_text("def f(completion):\n    while True: pass\n")
    code, lines, _ = verify("-v", "mine.py:f", "--timeout", "0.5", given="x", cwd=tmp_path)
    assert (code, lines[0]["status"]) == (6, "timeout")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-v", "numerc"], "did you mean numeric?"),
        (["-v", "numeric", "extrakt=last"], "did you mean verifiers.0.extract?"),
        (["-v", "nowhere.py:f"], "there is no file nowhere.py"),
        (["--file", "nowhere.jsonl"], "expected a JSONL file that can be read"),
        (["--run", "nowhere"], "nowhere"),
        (["--audit", "nowhere"], "expected --second VERIFIER"),
        (["--run", "a", "--file", "b"], "--file and --run are both given"),
    ],
)
def test_what_cannot_work_is_one_clear_line_and_exit_code_two(arguments, message, tmp_path):
    code, lines, told = verify(*arguments, "-a", "5", given="5", cwd=tmp_path)
    assert (code, lines) == (2, [])
    assert message in told
    assert "Traceback" not in told


def rows(path: Path, *items):
    path.write_text("".join(json.dumps(item) + "\n" for item in items))
    return path


def test_a_file_gives_a_line_per_row_and_a_summary(tmp_path):
    file = rows(
        tmp_path / "a.jsonl",
        {"completion": r"\boxed{5}", "answer": "5", "id": "x"},
        {"response": r"\boxed{6}", "ground_truth": "5"},
    )
    code, lines, _ = verify("--file", file)
    assert code == 1
    assert [(line["id"], line["score"]) for line in lines[:2]] == [("x", 1.0), ("2", 0.0)]
    assert lines[2]["summary"] == {"rows": 2, "right": 1, "not_right": 1, "unjudged": 0}


def test_audited_labels_in_a_file_calibrate_the_verifier(tmp_path):
    # two right answers of which one is rejected, two wrong ones: rates 1/2 and 0, J = 1/2
    file = rows(
        tmp_path / "a.jsonl",
        {"completion": "5", "answer": "5", "right": True},
        {"completion": "five", "answer": "5", "right": True},
        {"completion": "6", "answer": "5", "right": False},
        {"completion": "7", "answer": "5", "right": False},
    )
    summary = verify("-v", "numeric", "--file", file)[1][-1]["summary"]["calibration"]
    assert summary["false_negative"]["estimate"] == 0.5
    assert summary["false_positive"]["estimate"] == 0.0
    assert summary["informedness"] == 0.5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not json\n", "line 1: expected one JSON object"),
        ("[1]\n", "line 1: expected a JSON object, found list"),
        (
            '{"completion": "5", "answer": "5"}\n\n{"answer": "5"}\n',
            "line 3: expected a text in one of completion",
        ),
    ],
)
def test_a_bad_line_is_named_by_its_number(text, message, tmp_path):
    (tmp_path / "a.jsonl").write_text(text)
    code, _, told = verify("-v", "numeric", "--file", tmp_path / "a.jsonl")
    assert code == 2
    assert message in told


def test_a_verifier_is_examined_with_a_right_completion():
    code, lines, _ = verify("--check", "-a", "0.5", given=r"\boxed{1/2}")
    assert code == 0
    assert all(line["passed"] for line in lines)
    code, lines, _ = verify("--check", "-v", "format", "pattern=.*", "-a", "0.5", given="x")
    assert code == 1
    assert "rejects worthless texts" in [line["name"] for line in lines if not line["passed"]]


def test_a_recipes_channels_make_a_reward(tmp_path):
    recipe = tmp_path / "r.yaml"
    recipe.write_text(
        "model: tiny\ndata: mine.jsonl\nverifiers:\n"
        "  - {kind: numeric}\n  - {kind: format, pattern: '.*boxed.*', weight: 0.5}\n"
    )
    code, lines, _ = verify("-v", recipe, "-a", "5", given=r"\boxed{5}")
    assert (code, lines[0]["reward"]) == (0, 1.5)
    assert set(lines[0]["channels"]) == {"numeric", "format"}
    assert verify("-v", recipe, "-a", "5", given="5")[1][0]["reward"] == 1.0


def test_the_command_loads_no_torch():
    program = (
        "import sys; import peira.cli.verify, peira.build.verifier; "
        "print('torch' in sys.modules, 'numpy' in sys.modules, 'sympy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False", "False"]
