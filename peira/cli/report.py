"""`peira report`: one run as one HTML file."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer


def report(
    run: Annotated[Path, typer.Argument(help="The run's folder, or its name under runs/.")],
    out: Annotated[
        Path | None, typer.Option(help="Where to write; report.html in the run's folder unless told.")
    ] = None,
    show: Annotated[
        Literal["auto", "yes", "no"],
        typer.Option("--open", help="Open it in a browser; auto: when a person with a screen is there."),
    ] = "auto",
) -> None:
    """Write a run's report: one HTML file that needs no network.

    Works on a run that is finished, under way, killed or empty, and on a folder with nothing but evaluations.
    """
    from peira.plots.report import write_report

    folder = run if run.is_dir() or not (Path("runs") / run).is_dir() else Path("runs") / run
    path = write_report(folder, out=out, changed=changed_settings(folder / "config.yaml"))
    typer.echo(f"{path} ({path.stat().st_size / 1e6:.1f} MB)")
    if show == "yes" or (show == "auto" and _has_screen()):
        import webbrowser

        webbrowser.open(path.resolve().as_uri())


def changed_settings(config_file: Path) -> dict[str, tuple[Any, Any]]:
    """Settings that differ from their default: dotted path -> (value, default).

    Empty when there is no configuration, or when this version of peira cannot read it: the page shows the
    file itself in any case.
    """
    from peira.config.load import load_config
    from peira.config.show import differences
    from peira.errors import ConfigError

    if not config_file.exists():
        return {}
    try:
        config = load_config(config_file, notice=lambda text: None)
    except ConfigError:
        return {}
    return {path: (value, _default(config, path.split("."))) for path, value in differences(config).items()}


def _default(section: Any, path: list[str]) -> Any:
    """What the setting would be if nothing were said."""
    from peira.config.algorithm import AlgorithmConfig

    name, *rest = path
    if rest:
        return _default(section[int(name)] if name.isdigit() else getattr(section, name), rest)
    if isinstance(section, AlgorithmConfig) and name != "name":
        section = AlgorithmConfig(name=section.name)
        return getattr(section, name)
    field = type(section).model_fields[name]
    return "must be given" if field.is_required() else field.get_default(call_default_factory=True)


def _has_screen() -> bool:
    import os
    import sys

    return sys.stdout.isatty() and (sys.platform in ("darwin", "win32") or "DISPLAY" in os.environ)
