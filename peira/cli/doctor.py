"""`peira doctor`: everything a recipe needs, looked at before anybody pays for it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from peira.config.run import RunConfig
    from peira.trainer.preflight import Check

_MARKS = {"passed": "ok", "warned": "look", "failed": "FAILED", "skipped": "-"}


def doctor(
    recipe: Annotated[str, typer.Argument(help="A YAML file of settings.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="setting=value", help="Settings to change.")
    ] = None,
    invariance: Annotated[
        bool,
        typer.Option(
            "--invariance", help="Compare loss and gradient of a real batch under several micro-batch cuts."
        ),
    ] = False,
    show: Annotated[
        bool, typer.Option("--show", help="Only print the resolved settings, as YAML with comments.")
    ] = False,
) -> int:
    """Check everything a recipe needs, without training: data, prompt, verifiers, memory, disk, weight sync.

    Exits 0 when training can begin, 3 when a check failed.
    """
    from peira.config.load import load_config

    config = load_config(recipe, overrides or ())
    if show:
        from peira.config.show import as_yaml

        print(as_yaml(config, comments=True), end="")
        return 0
    return _invariance(config) if invariance else examine_and_print(config)


def examine_and_print(config: "RunConfig") -> int:
    """Plan and checks, to standard output; 0, or 3 when one failed."""
    import asyncio

    from rich.console import Console

    from peira.build.doctor import examine
    from peira.build.plan import plan
    from peira.build.run import prepare
    from peira.cli.display import print_pairs
    from peira.errors import ExitCode

    console = Console()
    with prepare(config) as prepared:
        print_pairs(console, plan(prepared))
        checks = asyncio.run(examine(prepared, on_check=lambda check: print_checks(console, [check])))
    if failed := failures(checks):
        console.print(f"not ready: {failed}", markup=False, highlight=False, soft_wrap=True)
        return ExitCode.PREFLIGHT
    console.print("ready: peira train with the same arguments")
    return ExitCode.DONE


def print_checks(console: "Console", checks: Sequence["Check"]) -> None:
    """One line per check."""
    for check in checks:
        line = f"{_MARKS[check.outcome.value]:<8}{check.name}: {check.detail}"
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def failures(checks: Sequence["Check"]) -> str:
    """Names of the checks that failed; empty when none did."""
    return ", ".join(check.name for check in checks if check.outcome.value == "failed")


def _invariance(config: "RunConfig") -> int:
    import asyncio

    from rich.console import Console

    from peira.build.doctor import measure_invariance
    from peira.build.run import prepare
    from peira.cli.display import print_table
    from peira.errors import ExitCode

    console = Console()
    with prepare(config) as prepared:
        found = asyncio.run(measure_invariance(prepared))
    console.print(found.about, markup=False, highlight=False, soft_wrap=True)
    print_table(
        console,
        ("cut", "parts", "loss", "gradient norm", "loss gap", "norm gap", "1 - cosine"),
        [
            (
                r.name,
                str(r.num_parts),
                f"{r.loss:.6g}",
                f"{r.grad_norm:.6g}",
                f"{r.loss_gap:.1e}",
                f"{r.norm_gap:.1e}",
                "-" if r.one_minus_cosine is None else f"{max(r.one_minus_cosine, 0.0):.1e}",
            )
            for r in found.results
        ],
    )
    verdict = "the same gradient under every cut" if found.same else "NOT the same gradient under every cut"
    console.print(f"{verdict} (relative tolerance {found.tolerance:.0e})", highlight=False)
    return ExitCode.DONE if found.same else ExitCode.PREFLIGHT
