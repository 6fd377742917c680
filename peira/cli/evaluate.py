"""`peira eval`: measure a model on held-out tasks."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from peira.runs.evaluation import EvalRecord


def evaluate(
    recipe: Annotated[str, typer.Argument(help="A YAML file of settings.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="setting=value", help="Settings to change: model=FOLDER")
    ] = None,
    samples: Annotated[
        int | None, typer.Option(help="Sampled completions per question, for pass@k.", show_default=False)
    ] = None,
    k: Annotated[
        str | None, typer.Option("--k", help="The k of pass@k, as in 1,8,64.", show_default=False)
    ] = None,
    greedy: Annotated[
        bool | None,
        typer.Option(
            "--greedy/--no-greedy", help="Also one greedy completion per question.", show_default=False
        ),
    ] = None,
    questions: Annotated[
        int | None, typer.Option(help="Use at most this many questions.", show_default=False)
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write everything, as JSON; - for standard output.")
    ] = None,
) -> int:
    """Measure a model on a recipe's held-out tasks: accuracy and pass@k with intervals over questions.

    Options stand for settings of `evaluation`; those not given come from the recipe. Any model folder can be
    measured, checkpoints included: model=runs/NAME/checkpoints/step-20
    """
    from peira.config.load import load_config

    given = {
        "evaluation.samples": samples,
        "evaluation.ks": f"[{k}]" if k else None,
        "evaluation.greedy": greedy,
        "evaluation.max_questions": questions,
    }
    options = [f"{path}={value}" for path, value in given.items() if value is not None]
    config = load_config(recipe, [*(overrides or ()), *options])

    import asyncio

    from rich.console import Console
    from rich.progress import Progress

    from peira.build.run import prepare, run_evaluation
    from peira.cli.display import print_table
    from peira.runs.jsonl import write_file

    silent = json_file == Path("-")
    if json_file is not None and not silent:
        check_writable(json_file, "--json")
    console = Console(stderr=silent)
    bar = Progress(console=console, transient=True, disable=not console.is_terminal)
    with prepare(config) as prepared, bar:
        task = bar.add_task("sampling", total=None)

        def progress(done: int, planned: int) -> None:
            bar.update(task, completed=done, total=planned)

        record, asked = asyncio.run(run_evaluation(prepared, progress))
    console.print(
        f"{record.num_questions} questions, {record.num_completions} completions, {record.num_unjudged} of "
        f"them unjudged; intervals at {record.confidence:.0%} over questions",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    print_table(console, ("", "value", "low", "high", "questions"), table(record))
    for note in record.notes:
        console.print(note, markup=False, highlight=False, soft_wrap=True)
    if json_file is not None:
        text = json.dumps(
            {**record.to_json(), "questions": [question.to_json() for question in asked]},
            indent=2,
            ensure_ascii=False,
        )
        if silent:
            print(text)
        else:
            write_file(json_file, [f"{text}\n".encode()])
            console.print(f"wrote {json_file}", highlight=False)
    return 0


def check_writable(file: Path, option: str) -> None:
    """Refuse a file that cannot be written, before the work is done that would be lost with it.

    Raises:
        ConfigError: it is a folder, or nothing can be made where it is to stand.
    """
    import os

    from peira.errors import ConfigError

    place = next(folder for folder in file.absolute().parents if folder.exists())
    if file.is_dir() or not place.is_dir() or not os.access(place, os.W_OK):
        raise ConfigError(f"command line: {option} = {str(file)!r}: expected a file that can be written")


def table(record: "EvalRecord") -> list[tuple[str, ...]]:
    """One row per estimate, then one per data source where there are several."""
    named = [
        *record.estimates.items(),
        *((f"{record.headline} on {s}", e) for s, e in record.by_source.items()),
    ]
    return [
        (name, f"{e.value:.3f}", f"{e.low:.3f}", f"{e.high:.3f}", str(e.num_questions)) for name, e in named
    ]
