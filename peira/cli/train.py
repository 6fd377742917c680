"""`peira train`: the plan, the checks, the run."""

from typing import Annotated

import typer


def train(
    recipe: Annotated[str, typer.Argument(help="A YAML file of settings; docs/config.md lists them.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="setting=value", help="Settings to change: steps=20")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run in this folder, or begin it.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Resolve and check everything, as `peira doctor`; train nothing."),
    ] = False,
    name: Annotated[
        str | None, typer.Option(help="Of the run's folder; short for name=NAME.", show_default=False)
    ] = None,
) -> int:
    """Train a model with the settings of a recipe.

    The plan is printed and cheap checks are made before the model loads. Ctrl-C saves and exits 130;
    --resume goes on from there exactly.
    """
    from peira.config.load import load_config

    config = load_config(recipe, [*(overrides or ()), *([] if name is None else [f"name={name}"])])

    from peira.cli.doctor import examine_and_print

    if dry_run:
        return examine_and_print(config)

    import asyncio

    from rich.console import Console

    from peira.build.doctor import cheap_checks
    from peira.build.plan import plan
    from peira.build.run import check_folder, prepare, run_training
    from peira.cli.display import Display, print_pairs
    from peira.cli.doctor import failures, print_checks
    from peira.errors import ExitCode, StopRun

    console = Console()
    check_folder(config, resume=resume)
    with prepare(config) as prepared:
        print_pairs(console, plan(prepared))
        checks = asyncio.run(cheap_checks(prepared))
        print_checks(console, checks)
        if failed := failures(checks):
            raise StopRun(f"pre-flight: {failed}; nothing was trained", ExitCode.PREFLIGHT)
        with Display(console, steps=config.steps) as display:
            try:
                summary = asyncio.run(run_training(prepared, display, resume=resume))
            except KeyboardInterrupt:
                raise StopRun(
                    "ended at once, without saving: continue from the last checkpoint with --resume",
                    ExitCode.INTERRUPTED,
                ) from None
        if summary.new_steps == 0:
            display.say(
                f"nothing left to do: all {summary.steps} steps were taken before; raise steps to go on"
            )
        display.say(f"saved {summary.checkpoint}; look at it with: peira report {prepared.run_folder}")
        if summary.before is not None and summary.after is not None:
            before, after = summary.before.headline_estimate, summary.after.headline_estimate
            display.say(
                f"held-out accuracy: {before.value:.3f} -> {after.value:.3f} "
                f"({after.num_questions} questions, {summary.duration_s / 60:.1f} min, "
                f"run {prepared.run_folder})"
            )
    return ExitCode.DONE
