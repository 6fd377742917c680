"""Results for people: a table on the terminal, and one page of all studies in a folder."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from peira.studies import STUDIES
from peira.studies.study import Result, number

_STYLE = {"holds": "green", "does not hold": "red", "undecided": "yellow", "not measured": "dim"}


def print_result(console: Console, result: Result) -> None:
    """Claims with verdicts, then how the numbers compare with independent ones."""
    table = Table(
        title=f"{result.study.name}: {result.study.question}", title_justify="left", show_lines=True
    )
    for column in ("claim", "measured, 95% interval", "claimed", "verdict"):
        table.add_column(column)
    for row in result.record()["claims"]:
        verdict = row["verdict"]
        table.add_row(
            f"{row['claim']}\n[dim]{row['how']}[/dim]",
            shown(row["measured"]),
            row["range"],
            f"[{_STYLE[verdict]}]{verdict}[/]",
        )
    console.print(table)
    for note in result.findings.notes:
        console.print(note, highlight=False)
    if result.findings.expected:
        gaps = [e for e in result.findings.expected if not e.agrees]
        console.print(
            f"{len(result.findings.expected) - len(gaps)} of {len(result.findings.expected)} numbers agree "
            "with an "
            "independent simulation or a closed form",
            highlight=False,
        )
        for gap in gaps:
            console.print(f"  {gap.name}: {gap.measured}, expected {number(gap.value)}", highlight=False)
    if result.changed:
        console.print(
            f"changed: {', '.join(result.changed)}: verdicts are about the changed arms", style="yellow"
        )
    quick = ", quick" if result.setting.quick else ""
    console.print(f"{result.setting.num_seeds} seeds, {result.duration_s:.0f} s{quick}", highlight=False)


def shown(measured: Mapping[str, Any] | None) -> str:
    """A measurement from a record."""
    if measured is None:
        return "-"
    value, low, high = (number(float(measured[key])) for key in ("value", "low", "high"))
    return value if low == high else f"{value} [{low}, {high}]"


def write_page(folder: Path) -> Path:
    """FOLDER.md beside the folder, from every record in it."""
    records = []
    for name in STUDIES:
        path = folder / f"{name}.json"
        if path.exists():
            records.append(json.loads(path.read_text(encoding="utf-8")))
    page = folder.with_suffix(".md")
    page.write_text("\n".join(_page(records, folder)) + "\n", encoding="utf-8")
    return page


def _page(records: Sequence[Mapping[str, Any]], folder: Path) -> list[str]:
    verdicts = [claim["verdict"] for record in records for claim in record["claims"]]
    counts = ", ".join(f"{verdicts.count(v)} {v}" for v in _STYLE if v in verdicts)
    lines = [
        "# Studies",
        "",
        "Seeded experiments that can say no. Each has claims with a range; a claim *holds* when the whole "
        "95% "
        "interval over seeds lies in it, *does not hold* when it lies outside, and is *undecided* "
        "otherwise. What is "
        "trained is built by the same function as a run's algorithm. `peira study NAME` prints the table;",
        "`peira study NAME arm.setting=value` breaks an ingredient, and the verdict should notice.",
        "",
        f"This page is written by `peira study all --out {folder.as_posix()}`. Claims: {counts}.",
        "",
        "Expected numbers come from independent simulations in numpy, or from closed forms, of the same "
        "set-up.",
        "",
        "All policies here are tables or a small network over made-up tasks, trained in seconds by plain "
        "gradient "
        "descent. They isolate a mechanism; a verdict says that the mechanism is, or is not, at work "
        "there. It does "
        "not say what happens to a language model, and no study here trains one.",
    ]
    for record in records:
        lines += _section(record, folder.name)
    return lines


def _section(record: Mapping[str, Any], folder: str) -> list[str]:
    name = record["study"]
    how = f"{record['num_seeds']} seeds{', quick' if record['quick'] else ''}"
    lines = [
        "",
        f"## {name}",
        "",
        f"**{record['question']}** {record['setup']} Source: {record['source']}. ({how}.)",
    ]
    if record["changed"]:
        lines += ["", f"Changed for this run: {', '.join(f'`{c}`' for c in record['changed'])}."]
    lines += ["", "| claim | how | claimed | measured | verdict |", "|---|---|---|---|---|"]
    for claim in record["claims"]:
        cells = (claim["claim"], claim["how"], claim["range"], shown(claim["measured"]), claim["verdict"])
        text = [cell.replace("|", "\\|") for cell in cells]
        lines.append(f"| {' | '.join(text[:-1])} | **{text[-1]}** |")
    if record["notes"]:
        lines += ["", *(f"* {note}" for note in record["notes"])]
    expected = record["expected"]
    if expected:
        gaps = [e for e in expected if not e["agrees"]]
        lines += [
            "",
            f"{len(expected) - len(gaps)} of {len(expected)} numbers agree with an independent simulation "
            "or a closed "
            "form of the same set-up" + ("." if not gaps else "; these do not:"),
        ]
        lines += (
            [
                "",
                *(
                    f"* {gap['name']}: {shown(gap['measured'])}, expected {number(gap['value'])}"
                    for gap in gaps
                ),
            ]
            if gaps
            else []
        )
    return [*lines, "", f"![{name}]({folder}/{name}.png)"]
