"""The command itself: help without weight, errors as one line, exit codes."""

import subprocess
import sys
import time
from types import ModuleType

import pytest

from peira import __version__
from peira.cli.main import COMMANDS, main
from peira.errors import ConfigError, ExitCode, StopRun, SyncError, VerifierError

HEAVY = ("torch", "transformers", "numpy", "datasets", "sympy", "pydantic", "omegaconf")


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    code = caught.value.code
    return int(code or 0)


@pytest.fixture
def command(monkeypatch):
    """Puts a function in the place of `peira report`."""

    def install(function):
        module = ModuleType("peira.cli.report")
        module.report = function  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "peira.cli.report", module)

    return install


def loaded_after(*arguments: str) -> tuple[str, set[str], float]:
    """Output, heavy modules loaded, and seconds of `peira ARGUMENTS` in a fresh process."""
    code = (
        "import sys\n"
        "from peira.cli.main import main\n"
        "try:\n"
        f"    main({list(arguments)!r})\n"
        "except SystemExit as error:\n"
        "    assert not error.code, error.code\n"
        f"print('loaded:', *(name for name in {HEAVY!r} if name in sys.modules))\n"
    )
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    text, _, names = done.stdout.rpartition("loaded:")
    return text, set(names.split()), time.monotonic() - started


def test_help_names_every_command_and_loads_nothing_heavy():
    text, loaded, seconds = loaded_after("--help")
    for name in COMMANDS:
        assert f"\n  {name} " in text
    assert "setting=value" in text
    assert loaded == set()
    assert seconds < 5  # a tenth of a second on a quiet machine


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_loads_no_torch(name):
    text, loaded, _ = loaded_after(name, "--help")
    assert text.startswith(f"Usage: peira {name}")
    assert not loaded & {"torch", "transformers", "datasets"}


def test_version_is_printed(capsys):
    assert run("--version") == 0
    assert capsys.readouterr().out == f"peira {__version__}\n"


def test_no_command_shows_the_help(capsys):
    assert run() == ExitCode.USAGE
    assert "Commands:" in capsys.readouterr().err


def test_an_unknown_command_or_option_is_a_usage_error(capsys):
    assert run("trian") == ExitCode.USAGE
    assert "No such command 'trian'" in capsys.readouterr().err
    assert run("train", "recipe.yaml", "--resumee") == ExitCode.USAGE
    assert "--resumee" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("here: steps = 0: expected at least 1"), 2),
        (VerifierError("broken"), 6),
        (SyncError("stale"), 5),
        (StopRun("no signal", ExitCode.COLLAPSE), 4),
        (StopRun("saved", ExitCode.INTERRUPTED), 130),
    ],
)
def test_what_peira_raises_is_one_line_and_its_exit_code(command, capsys, error, code):
    def report() -> None:
        raise error

    command(report)
    assert run("report") == code
    assert capsys.readouterr().err == f"peira: {error}\n"


def test_each_problem_of_a_configuration_has_its_own_line(command, capsys):
    def report() -> None:
        raise ConfigError("a: one\nb: two")

    command(report)
    assert run("report") == 2
    assert capsys.readouterr().err == "peira: a: one\npeira: b: two\n"


@pytest.mark.parametrize("arguments", [("--debug", "report"), ("report", "--debug")])
def test_debug_shows_the_traceback(command, arguments):
    def report() -> None:
        raise ConfigError("here")

    command(report)
    with pytest.raises(ConfigError, match="here"):
        main(arguments)


def test_an_unexpected_exception_keeps_its_traceback(command):
    def report() -> None:
        raise KeyError("a bug")

    command(report)
    with pytest.raises(KeyError, match="a bug"):
        main(["report"])


def test_what_a_command_returns_is_the_exit_code(command):
    command(lambda: 3)
    assert run("report") == 3
    command(lambda: None)
    assert run("report") == 0


def test_ctrl_c_before_there_is_anything_to_save_exits_130(command, capsys):
    def report() -> None:
        raise KeyboardInterrupt

    command(report)
    assert run("report") == ExitCode.INTERRUPTED


def test_a_broken_recipe_is_reported_before_anything_heavy_is_imported(tmp_path):
    recipe = tmp_path / "r.yaml"
    recipe.write_text("model: m\ndata: d.jsonl\nverifier: math\ngroup_size: 1\n")
    code = (
        "import sys\n"
        "from peira.cli.main import main\n"
        "try:\n"
        f"    main(['train', {str(recipe)!r}])\n"
        "finally:\n"
        "    print('torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == ExitCode.USAGE
    assert done.stderr == f"peira: {recipe}:4: group_size = 1: expected at least 2\n"
    assert done.stdout == "False\n"
