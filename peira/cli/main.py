"""The `peira` command: which commands there are, and how errors become exit codes.

Commands live in files of their own and are imported when they are called: `peira --help` knows them from the
table below and loads none of them, let alone torch.
"""

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from peira import __version__
from peira.errors import ExitCode, PeiraError

COMMANDS = {
    "train": "Train a model with the settings of a recipe.",
    "eval": "Measure a model on held-out tasks: accuracy and pass@k.",
    "verify": "Judge an answer from the shell.",
    "doctor": "Check everything a recipe needs, without training.",
    "report": "Write a run's report: one HTML file.",
    "models": "List the models that are here, and how to get the others.",
    "study": "Run a seeded experiment: claim, measurement, verdict.",
    "pretrain": "Make a tiny model from procedural text, for tests and studies.",
}
"""Name -> first line of its help. The function of that name stands in the file of that name."""
_FILES = {"eval": "evaluate"}


class _Command(TyperCommand):
    """Tells who writes a setting as an option how settings are written."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return list(super().parse_args(ctx, args))
        except typer.Exit:
            raise
        except Exception as error:
            option = getattr(error, "option_name", None)  # typer keeps the class that has it to itself
            if option is not None and any(p.metavar == "setting=value" for p in self.params):
                setting = option.lstrip("-").replace("-", "_")
                error.message += f"; settings have no dashes: {setting}=VALUE"  # type: ignore[attr-defined]
                error.possibilities = None  # type: ignore[attr-defined]
            raise


class _Commands(TyperGroup):
    """Shows the table without importing a command; imports the one that is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return _command(cmd_name, lambda: None, COMMANDS[cmd_name]) if cmd_name in COMMANDS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, _, rest = super().resolve_command(ctx, args)
        file = _FILES.get(str(name), str(name))
        return name, _command(str(name), getattr(import_module(f"peira.cli.{file}"), file)), rest


def _command(name: str, function: Callable[..., Any], text: str | None = None) -> Any:
    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    single.command(name, help=text, cls=_Command)(function)
    return typer.main.get_command(single)


def _leave(result: Any, **_: Any) -> None:
    if isinstance(result, int):
        raise typer.Exit(result)


app = typer.Typer(
    cls=_Commands,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    result_callback=_leave,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"peira {__version__}")
        raise typer.Exit


@app.callback()
def _peira(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of every error.")] = False,
) -> None:
    """Reinforcement learning with verifiable rewards: a model tries, a verifier checks, the weights move.

    A recipe is a YAML file of settings; setting=value after it changes any of them.

    \b
    peira train recipes/gsm8k.yaml data.path=mine.jsonl
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and leave with its exit code; what peira raises on purpose is one line on stderr."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    given = [argument for argument in given if argument != "--debug"]
    try:
        typer.main.get_command(app)(args=given, prog_name="peira")
    except PeiraError as error:
        if debug:
            raise
        for line in str(error).splitlines():
            print(f"peira: {line}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("peira: interrupted", file=sys.stderr)
        sys.exit(ExitCode.INTERRUPTED)


if __name__ == "__main__":
    main()
