"""Where tasks come from, whatever holds them: one protocol, and the choice among the kinds."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.resources import files
from itertools import chain, islice
from pathlib import Path
from typing import Protocol, runtime_checkable

from peira.config.data import SourceConfig
from peira.data.fingerprint import content_hash
from peira.data.prompt import PromptStyle
from peira.data.reading import Reading
from peira.data.rows import Row, nearest, read_json, read_jsonl, read_parquet
from peira.errors import ConfigError, DataError
from peira.types.task import Task

FILE_READERS: dict[str, Callable[[Path], Iterator[Row]]] = {
    ".jsonl": read_jsonl,
    ".ndjson": read_jsonl,
    ".json": read_json,
    ".parquet": read_parquet,
}
_OTHER_FILES = (".csv", ".tsv", ".txt", ".gz", ".zst", ".zip", ".xlsx", ".arrow", ".yaml", ".yml", ".pkl")
HEAD_ROWS = 100
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTable:
    """Everything one source holds, in the order of its rows."""

    name: str
    reading: str
    """How rows became tasks, in words."""
    tasks: tuple[Task, ...]
    places: tuple[str, ...]
    """Where each task stands, for errors."""
    keys: tuple[str, ...]
    """Hash of each prompt as the data has it, before system prompt and template."""

    def __post_init__(self) -> None:
        assert len(self.tasks) == len(self.places) == len(self.keys)


@runtime_checkable
class TaskSource(Protocol):
    """A dataset. Loading twice gives equal tables; tasks without an id of their own get a content hash."""

    @property
    def name(self) -> str:
        """Short, for metrics by source."""
        ...

    def load(self, style: PromptStyle) -> TaskTable:
        """All tasks, their prompts in this style.

        Raises:
            DataError: nothing can be read, or a row is not a task; names file, line, column and value.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSource:
    """Rows that somebody wrote: a file, a folder or a hub dataset."""

    name: str
    config: SourceConfig
    rows: Callable[[], Iterator[Row]]
    """Called once per load."""

    def load(self, style: PromptStyle) -> TaskTable:
        """Decide the reading on the first rows, then read every row by it."""
        rows = islice(self.rows(), self.config.size)
        head = list(islice(rows, HEAD_ROWS))
        if not head:
            raise DataError(f"{self.config.path}: no rows: expected at least one")
        reading = Reading.choose(head, self.config.columns, self.config.answer_pattern)
        tasks, places, keys = [], [], []
        for row in chain(head, rows):
            raw = reading.raw_prompt(row)
            task = reading.task(row, style, source=self.name, verifier=self.config.verifier)
            tasks.append(named(task, raw))
            places.append(row.place)
            keys.append(content_hash(raw))
        if self.config.size is not None and len(tasks) < self.config.size:
            raise DataError(
                f"{self.config.path}: size = {self.config.size}: expected at most the "
                f"{len(tasks)} rows that there are"
            )
        return TaskTable(
            name=self.name,
            reading=reading.describe(),
            tasks=tuple(tasks),
            places=tuple(places),
            keys=tuple(keys),
        )


def named(task: Task, raw: object) -> Task:
    """The task, with a hash of prompt and answer for an id where it has none."""
    if task.id:
        return task
    return replace(task, id=content_hash(raw, task.answer)[:16])


def open_source(config: SourceConfig) -> TaskSource:
    """The source that a setting names; nothing is read yet.

    Raises:
        ConfigError: the path fits no kind of source, or a procedural family or option does not exist.
        DataError: a file that is not there.
    """
    kind, _, family = config.path.partition(":")
    name = config.name or _short_name(config.path)
    if kind == "reasoning_gym":
        from peira.data.gym import GymSource

        return GymSource(name=name, family=family, config=config)
    if kind == "synthetic":
        from peira.data.synthetic import SyntheticSource

        return SyntheticSource(name=name, family=family, config=config)
    path = _shipped(family) if kind == "theorems" else Path(config.path).expanduser()
    suffix = path.suffix.lower()
    if path.is_dir():
        from peira.data.hub import folder_rows

        return StoredSource(name=name, config=config, rows=lambda: folder_rows(path, config))
    if suffix in FILE_READERS:
        _require_file(path, config)
        return StoredSource(name=name, config=config, rows=lambda: FILE_READERS[suffix](path))
    if suffix in _OTHER_FILES or path.is_file():
        raise ConfigError(
            f"data.path = {config.path!r}: expected a file ending in {', '.join(FILE_READERS)}; "
            "convert it, for instance with datasets or pandas"
        )
    if not _HUB_ID.fullmatch(config.path):
        raise DataError(f"data.path = {config.path!r}: no such file or folder{_near_files(path)}")
    from peira.data.hub import hub_rows

    return StoredSource(name=name, config=config, rows=lambda: hub_rows(config))


def _shipped(name: str) -> Path:
    """A collection of theorems that comes with the package."""
    folder = Path(str(files("peira"))) / "verifiers" / "proof" / "tasks"
    names = sorted(path.stem for path in folder.glob("*.json"))
    if name not in names:
        raise ConfigError(f"data.path = 'theorems:{name}': expected one of {', '.join(names)}")
    return folder / f"{name}.json"


def _require_file(path: Path, config: SourceConfig) -> None:
    if not path.is_file():
        raise DataError(f"data.path = {config.path!r}: no such file{_near_files(path)}")
    for key in ("split", "subset"):
        if getattr(config, key) != SourceConfig.model_fields[key].default:
            raise ConfigError(
                f"data: {key} = {getattr(config, key)!r}: no meaning for the single file {config.path!r}; "
                "give a folder or a hub id, or leave it out"
            )


def _near_files(path: Path) -> str:
    return nearest(path.name, sorted(p.name for p in path.parent.iterdir())) if path.parent.is_dir() else ""


def _short_name(path: str) -> str:
    name = path.rstrip("/").replace(":", "/").rsplit("/", 1)[-1]
    return Path(name).stem if Path(name).suffix in FILE_READERS else name
