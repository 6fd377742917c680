"""`peira study`: what a method claims, what is measured, and the verdict."""

from pathlib import Path
from typing import Annotated

import typer

from peira.studies import STUDIES


def study(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(STUDIES)}; or all.")],
    changes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="arm.setting=value",
            help="Break an ingredient: the verdict should notice.",
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Independent copies; the study's own number unless told.")
    ] = None,
    first_seed: Annotated[int, typer.Option(help="Of the random streams.")] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer seeds; the long parts are left out.")] = False,
    out: Annotated[
        Path, typer.Option(help="Folder for NAME.json and NAME.png; FOLDER.md is the page of all of them.")
    ] = Path("runs/studies"),
) -> None:
    """Run a seeded experiment that can say no, and print claim, measurement and verdict.

    Exits 0 when it ran, whatever the verdicts. Seconds to a few minutes on two cores.
    """
    from rich.console import Console

    from peira.studies.page import print_result, write_page
    from peira.studies.study import find, run_study, write

    wanted = [find(each) for each in (STUDIES if name == "all" else [name])]

    import torch

    torch.set_num_threads(1)  # tables are small: a second thread only waits
    console = Console()
    for each in wanted:
        result = run_study(each, num_seeds=seeds, quick=quick, first_seed=first_seed, changes=changes or ())
        print_result(console, result)
        data, picture = write(result, out)
        typer.echo(f"{data}, {picture}, {write_page(out)}")
