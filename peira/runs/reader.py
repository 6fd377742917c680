"""Reads a run folder: finished, running, killed, or never more than an evaluation."""

import json
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from peira.errors import RunError
from peira.runs.evaluation import EvalQuestion, EvalRecord
from peira.runs.jsonl import number, read_lines
from peira.runs.layout import RunFolder, files_by_step
from peira.runs.ledger import Ledger, LedgerEntry
from peira.runs.metrics import RESERVED
from peira.runs.rollout_file import RecordedGroup, group_from_json


class RunState(StrEnum):
    """How a run stands."""

    EMPTY = "empty"
    """Nothing was ever recorded."""
    RUNNING = "running"
    """A process holds the folder."""
    FINISHED = "finished"
    """Ended as planned."""
    STOPPED = "stopped"
    """Ended with another exit code, and said so."""
    KILLED = "killed"
    """Nobody holds the folder and nobody said that it ended: kill -9, a lost machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a run stands, with what it said when it ended."""

    state: RunState
    exit_code: int | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncations:
    """What resumes took out, all together: work that a kill made vain."""

    times: int = 0
    rollouts: int = 0
    tokens: int = 0


class RunReader:
    """One run folder, read afresh at each call; never writes, and tolerates a writer at work.

    Raises:
        RunError: there is no such folder, or what is in it is no run.
    """

    def __init__(self, path: Path) -> None:
        self.folder = RunFolder(path)
        if not path.is_dir() or self.folder.is_foreign:
            near = _run_near(path)
            raise RunError(
                f"run folder: {path}: expected a folder that `peira train` wrote"
                + (f"; did you mean {near}?" if near is not None else "")
            )

    def config_text(self) -> str:
        """The resolved configuration as YAML; empty when there is none."""
        return _text(self.folder.config_file)

    def environment(self) -> dict[str, Any]:
        """Versions, machine, commit and device of the latest session; empty when there is none."""
        text = _text(self.folder.environment_file)
        return _object(self.folder.environment_file, text) if text else {}

    def events(self) -> list[dict[str, Any]]:
        """What happened to the run as a whole, in order."""
        return list(read_lines(self.folder.events_file))

    def metrics(self) -> list[dict[str, float]]:
        """One record per step in order, with `step`, `time` and every metric that the step has.

        Several lines of one step are merged; the later one wins where both speak.
        """
        by_step: dict[int, dict[str, float]] = {}
        for line in read_lines(self.folder.metrics_file):
            record = by_step.setdefault(line["step"], {})
            record.update((name, value if name == "step" else number(value)) for name, value in line.items())
        return [by_step[step] for step in sorted(by_step)]

    def series(self, name: str) -> tuple[list[int], list[float]]:
        """One metric over the steps that have it: (steps, values)."""
        found = [(int(record["step"]), record[name]) for record in self.metrics() if name in record]
        return [step for step, _ in found], [value for _, value in found]

    def metric_names(self) -> list[str]:
        """Every metric that was recorded at least once, sorted."""
        return sorted({name for record in self.metrics() for name in record} - set(RESERVED))

    def ledger(self) -> Ledger:
        """The ledger; call `check` on it to have the balance proved."""
        return Ledger(LedgerEntry.from_json(line) for line in read_lines(self.folder.ledger_file))

    def rollout_steps(self) -> list[int]:
        """The steps whose rollouts are on disk."""
        return list(files_by_step(self.folder.rollouts_folder, ".jsonl"))

    def rollouts(self, step: int) -> Iterator[RecordedGroup]:
        """The groups that a step generated, in order; none when they were not kept."""
        for line in read_lines(self.folder.rollouts_file(step)):
            yield group_from_json(line)

    def evals(self) -> list[EvalRecord]:
        """Every evaluation, in the order of the steps."""
        return [
            EvalRecord.from_json(_object(path, _text(path)))
            for path in files_by_step(self.folder.evals_folder, ".json").values()
        ]

    def eval_questions(self, step: int) -> Iterator[EvalQuestion]:
        """The questions behind the evaluation after `step` steps."""
        for line in read_lines(self.folder.eval_questions_file(step)):
            yield EvalQuestion.from_json(line)

    def truncations(self) -> Truncations:
        """What resumes took out."""
        counts = [line["counts"] for line in self.events() if line["event"] == "truncating"]
        return Truncations(
            times=len(counts),
            rollouts=sum(item["rollouts"] for item in counts),
            tokens=sum(item["tokens"] for item in counts),
        )

    def ending(self) -> Ending:
        """How the run stands now.

        Where locks do not reach from machine to machine, a run on another one may read KILLED while it runs.
        """
        if is_held(self.folder):
            return Ending(state=RunState.RUNNING)
        last = None
        for line in self.events():
            if line["event"] in ("started", "resumed", "finished"):
                last = line
        if last is None:
            empty = not self.folder.metrics_file.exists() and not self.evals()
            return Ending(state=RunState.EMPTY if empty else RunState.FINISHED)
        if last["event"] != "finished":
            host = last.get("host", "")
            where = "" if host == platform.node() else f" (it was running on {host})"
            return Ending(
                state=RunState.KILLED, message=f"process {last.get('pid')} ended without a word{where}"
            )
        state = RunState.FINISHED if last["exit_code"] == 0 else RunState.STOPPED
        return Ending(state=state, exit_code=last["exit_code"], message=last["message"])


def is_held(folder: RunFolder) -> bool:
    """Whether a process has the run folder open for writing."""
    if not folder.lock_file.exists():
        return False
    try:
        with FileLock(folder.lock_file, timeout=0, thread_local=False):
            return False
    except Timeout:
        return True
    except OSError:  # a folder that we may only read: nobody can tell
        return False


def _run_near(path: Path) -> Path | None:
    """The run around this place, or else the newest one right inside it."""
    around = next((folder for folder in path.absolute().parents if RunFolder(folder).is_run), None)
    if around is not None or not path.is_dir():
        return around
    inside = [folder for folder in path.iterdir() if folder.is_dir() and RunFolder(folder).is_run]
    return max(inside, key=lambda folder: folder.stat().st_mtime, default=None)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"{path}: {error}: expected a readable text file") from error


def _object(path: Path, text: str) -> dict[str, Any]:
    try:
        record = json.loads(text)
    except ValueError as error:
        raise RunError(f"{path}: {error}: expected one JSON object") from error
    if not isinstance(record, dict):
        raise RunError(f"{path}: expected one JSON object, found {text[:60]!r}")
    return record
