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
    for heading in ("name", "state", "parameters", "on disk", "licence"):
        table.add_column(heading, no_wrap=True, justify="right" if heading == "on disk" else "left")
    console = Console(highlight=False)
    found = [availability(name) for name in CATALOGUE]
    for model in found:
        entry = model.entry
        size = f"{entry.size_bytes / 1e6:,.0f} MB"
        table.add_row(entry.name, model.state, _short(entry.num_parameters), size, entry.licence)
    console.print(table)
    console.print()
    for model in found:
        console.print(f"{model.entry.name}: {model.entry.about}")
        if model.way:
            console.print(f"  to get it: {model.way}")
    console.print(
        "\nA model can also be a folder in transformers format, or a hub id (owner/name) where there is a "
        f"network.\nConverted models are kept in {cache_folder() / 'models'}; PEIRA_CACHE moves it."
    )


def _short(count: int) -> str:
    return f"{count / 1e6:,.1f} M" if count >= 1e6 else f"{count / 1e3:,.0f} k"
