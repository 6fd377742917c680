"""Data settings into tasks: what is trained on, what is held out, and what became of every row."""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from peira.config.data import DataConfig, SourceConfig
from peira.data.clean import (
    LengthReport,
    split_held_out,
    with_unique_ids,
    within_length,
    without_duplicates,
    without_overlap,
)
from peira.data.curriculum import CurriculumSampler
from peira.data.prompt import PromptStyle
from peira.data.sampler import Pool, TaskSampler
from peira.data.source import TaskTable, open_source
from peira.errors import ConfigError, DataError
from peira.types.task import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceReport:
    """What became of one source."""

    name: str
    reading: str
    """In words: which column is what."""
    num_rows: int
    num_train: int
    num_held_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DataReport:
    """What was read and what became of it; rows = train + held_out + duplicates + overlap + too long."""

    sources: tuple[SourceReport, ...]
    duplicates: int
    """Repeated rows, left out unless `duplicates: keep`."""
    overlap: int
    """Training rows whose prompt is held out, left out unless `duplicates: keep`."""
    conflicts: int
    """Rows with the prompt of an earlier row and another answer; kept."""
    rule: Literal["drop", "keep", "error"]
    examples: tuple[str, ...] = ()
    """Places of the first few of the above."""
    train_lengths: LengthReport | None = None
    held_out_lengths: LengthReport | None = None

    def lines(self) -> list[str]:
        """For the terminal."""
        lines = [
            f"{source.name}: {source.num_rows} rows -> {source.num_train} to train on, "
            f"{source.num_held_out} held out; {source.reading}"
            for source in self.sources
        ]
        verb = "kept" if self.rule == "keep" else "left out"
        if self.duplicates:
            lines.append(f"{self.duplicates} repeated rows {verb}")
        if self.overlap:
            lines.append(f"{self.overlap} training rows with a held-out prompt {verb}")
        if self.conflicts:
            lines.append(f"{self.conflicts} rows repeat a prompt with another answer; one may be wrong")
        lines += [f"  {example}" for example in self.examples]
        for name, lengths in (("training", self.train_lengths), ("held-out", self.held_out_lengths)):
            if lengths is not None and lengths.num_tasks:
                dropped = len(lengths.dropped)
                lines.append(
                    f"{name} prompts: up to {lengths.longest} tokens, {dropped} left out as too long"
                )
        return lines

    def to_json(self) -> dict[str, Any]:
        """For the run folder."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSets:
    """The two sides of the data."""

    train: TaskSampler
    held_out: tuple[Task, ...]
    report: DataReport
    places: Mapping[str, str]
    """Task id -> where the data has it, for errors."""


def build_tasks(data: DataConfig, seed: int) -> TaskSets:
    """Read, render, deduplicate and split everything that the settings name.

    No tokenizer is needed; prompts too long for the model are found by `limit_prompts`, once there is one.

    Raises:
        ConfigError: a setting does not fit the data.
        DataError: a row is not a task, or no task is left; names file, line, column and value.
    """
    style = PromptStyle.of(data)
    tables = _load(data.train_sources, style)
    held_tables = _load(data.held_out_sources, style, taken={table.name for table in tables})
    rows = {table.name: len(table.tasks) for table in (*tables, *held_tables)}
    readings = {table.name: table.reading for table in (*tables, *held_tables)}

    train, repeats = without_duplicates(tables, data.duplicates)
    held_out, held_repeats = without_duplicates(held_tables, data.duplicates)
    overlap: tuple[tuple[str, str], ...] = ()
    if held_tables:
        train, found = without_overlap(train, held_out, data.duplicates)
        overlap = found.repeats
    else:
        train, held_out = split_held_out(train, data.held_out_fraction)
    both = with_unique_ids([*train, *held_out])
    train, held_out = both[: len(train)], both[len(train) :]
    for table in train:
        if not table.tasks:
            raise DataError(
                f"data: {table.name}: all {rows[table.name]} rows repeat others or are held out: "
                "expected some to train on; give other data, or set data.duplicates: keep"
            )

    weights = {table.name: source.weight for table, source in zip(tables, data.train_sources, strict=True)}
    pools = [Pool(name=t.name, tasks=t.tasks, weight=weights[t.name]) for t in train]
    conflicts = repeats.conflicts + held_repeats.conflicts
    report = DataReport(
        sources=_source_reports(rows, readings, train, held_out),
        duplicates=len(repeats.repeats) + len(held_repeats.repeats),
        overlap=len(overlap),
        conflicts=len(conflicts),
        rule=data.duplicates,
        examples=tuple(
            f"{one} has the prompt of {other}"
            for pairs in (repeats.repeats, held_repeats.repeats, overlap, conflicts)
            for one, other in pairs[:2]
        ),
    )
    sampler = (
        TaskSampler(pools, seed=seed, shuffle=data.shuffle)
        if data.curriculum is None
        else CurriculumSampler(pools, seed=seed, settings=data.curriculum)
    )
    return TaskSets(
        train=sampler,
        held_out=tuple(task for table in held_out for task in table.tasks),
        report=report,
        places={t.id: place for table in both for t, place in zip(table.tasks, table.places, strict=True)},
    )


def limit_prompts(
    sets: TaskSets,
    count_tokens: Callable[[Task], int],
    *,
    max_tokens: int,
    long_prompts: Literal["error", "drop"],
) -> TaskSets:
    """Leave out, or refuse, what is too long for the model. The sampler starts at position 0.

    Raises:
        DataError: the longest prompts and their tokens, when they are refused or nothing is left.
    """
    train, lengths = within_length(
        sets.train.tasks, count_tokens, max_tokens=max_tokens, long_prompts=long_prompts
    )
    held_out, held_lengths = within_length(
        sets.held_out, count_tokens, max_tokens=max_tokens, long_prompts=long_prompts
    )
    kept = {task.id for task in train}
    return replace(
        sets,
        train=sets.train.filter(lambda task: task.id in kept),
        held_out=held_out,
        report=replace(sets.report, train_lengths=lengths, held_out_lengths=held_lengths),
    )


def _load(
    sources: Sequence[SourceConfig], style: PromptStyle, taken: Set[str] = frozenset()
) -> list[TaskTable]:
    names = set(taken)
    tables = []
    for config in sources:
        table = open_source(config).load(style)
        if config.name and config.name in names:
            raise ConfigError(f"data: name = {config.name!r}: expected another name for each source")
        name, number = table.name, 1
        if name in names and config.split != SourceConfig.model_fields["split"].default:
            name = f"{table.name}-{config.split}"  # two splits of one dataset
        while name in names:
            number += 1
            name = f"{table.name}-{number}"
        names.add(name)
        tasks = tuple(replace(t, source=name) if t.source == table.name else t for t in table.tasks)
        tables.append(replace(table, name=name, tasks=tasks))
    return tables


def _source_reports(
    rows: dict[str, int], readings: dict[str, str], train: list[TaskTable], held_out: list[TaskTable]
) -> tuple[SourceReport, ...]:
    trained = {table.name: len(table.tasks) for table in train}
    held = {table.name: len(table.tasks) for table in held_out}
    return tuple(
        SourceReport(
            name=name,
            reading=readings[name],
            num_rows=count,
            num_train=trained.get(name, 0),
            num_held_out=held.get(name, 0),
        )
        for name, count in rows.items()
    )
