"""`peira train`"""

from typing import Annotated
import typer


def train(
    recipe: Annotated[str, typer.Argument()],
    overrides: Annotated[list[str] | None, typer.Argument()] = None,
    resume: bool = False,
) -> int:
    """Train."""
    from peira.config.load import load_config

    print(load_config(recipe, overrides or []))
    return 3
