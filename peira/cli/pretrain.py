"""`peira pretrain`: a tiny model from a recipe."""

from pathlib import Path
from typing import Annotated

import typer


def pretrain(
    recipe: Annotated[Path, typer.Argument(help="A YAML file, e.g. recipes/pretrain/tiny-arith.yaml.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Settings to change: seed=1 training.steps=200")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write, which must not exist; models/NAME when not given.")
    ] = None,
) -> None:
    """Pretrain a tiny character-level model on procedural traces; write an ordinary model folder."""
    from peira.config.pretrain import load_pretrain

    config = load_pretrain(recipe, overrides or ())
    folder = out or Path("models") / config.name

    import time

    import torch
    import yaml
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from peira.models.tiny import TinyShape, Training
    from peira.models.tiny import pretrain as make
    from peira.models.traces import TraceSpec

    if config.threads is not None:
        torch.set_num_threads(config.threads)
    console = Console(stderr=True)
    started = time.monotonic()
    columns = (
        TextColumn("pretraining"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]}"),
    )
    with Progress(*columns, TimeRemainingColumn(), console=console) as bar:

        def show(step: int, loss: float) -> None:
            bar.update(task, completed=step, loss=f"{loss:.3f}")
            if not console.is_terminal and step % max(1, config.training.steps // 10) == 0:
                console.print(f"step {step}/{config.training.steps} loss {loss:.3f}", highlight=False)

        task = bar.add_task("", total=config.training.steps, loss="-")
        metrics = make(
            folder,
            shape=TinyShape(**config.model.model_dump()),
            specs=tuple(TraceSpec(**trace.model_dump()) for trace in config.traces),
            training=Training(**config.training.model_dump()),
            seed=config.seed,
            heldout_fraction=config.heldout_fraction,
            questions=config.questions,
            samples=config.samples,
            recipe=yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False),
            progress=show,
        )
    minutes = (time.monotonic() - started) / 60
    console.print(f"{metrics['num_parameters']:,} parameters, final loss {metrics['final_loss']:.3f}")
    accuracy = metrics["accuracy"]
    assert isinstance(accuracy, dict)
    for kind, values in accuracy.items():
        shown = ", ".join(
            f"{name} {values[name]:.2f}" for name in values if name not in ("questions", "samples")
        )
        console.print(f"{kind}: {shown} ({values['questions']} held-out questions)", highlight=False)
    typer.echo(f"{folder} ({minutes:.1f} min)")
