"""`peira models`: what is here, and how to get the rest."""

from typing import Annotated

import typer


def models(
    json: Annotated[bool, typer.Option("--json", help="Machine-readable, with folders.")] = False,
) -> None:
    """List the models that need no hub: what is here, what each needs, and how to get the rest."""
    from peira.models.catalogue import CATALOGUE, as_json, availability, cache_folder

    if json:
        typer.echo(as_json())
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("name", "state", "parameters", "on disk", "licence", "how to get it"):
        table.add_column(heading, overflow="fold", justify="right" if heading == "on disk" else "left")
    for name, entry in CATALOGUE.items():
        found = availability(name)
        size = f"{entry.size_bytes / 1e6:,.0f} MB"
        table.add_row(name, found.state, _short(entry.num_parameters), size, entry.licence, found.way or "-")
    console = Console()
    console.print(table)
    for name, entry in CATALOGUE.items():
        console.print(f"{name}: {entry.about}", highlight=False)
    console.print(
        f"\nA model can also be a folder in transformers format, or a hub id (owner/name) where there is a network."
        f"\nConverted models are kept in {cache_folder() / 'models'} (PEIRA_CACHE moves it).",
        highlight=False,
    )


def _short(count: int) -> str:
    return f"{count / 1e6:,.1f} M" if count >= 1e6 else f"{count / 1e3:,.0f} k"
