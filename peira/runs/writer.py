"""The one process that may write a run folder.

What a call wrote is with the kernel when the call returns, so a kill -9 loses nothing that was reported as
written. `sync` waits for the disk itself; the trainer calls it before it publishes a checkpoint, so that
after a power failure everything up to it is there. Rollout files, evaluations and rewritten files are
always synced.

Steps count from 1, and everything that carries the number n (metrics, ledger, rollouts, evaluation,
checkpoint) speaks of the run after n steps. 0 is before the first: an evaluation of the untrained policy.
"""

import difflib
import os
import platform
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from filelock import FileLock, Timeout

from peira.errors import ExitCode, PeiraError, RunError
from peira.runs.environment import environment
from peira.runs.evaluation import EvalQuestion, EvalRecord
from peira.runs.jsonl import JsonLines, disk_error, dumps, read_lines, write_file, write_whole
from peira.runs.layout import RunFolder, files_by_step
from peira.runs.ledger import DropReason, Ledger, LedgerEntry, total
from peira.runs.metrics import checked_metrics
from peira.runs.rollout_file import groups_to_json
from peira.types.scored import ScoredGroup

_LOCK_PATIENCE_S = 1.0  # a reader that looks whether somebody writes holds the lock for a moment


class RunWriter:
    """Writes one run folder; a context manager that records how the run ended.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp()) / "demo"
        >>> with RunWriter.create(folder, "steps: 1", resume=False) as run:
        ...     _ = run.write_metrics(1, {"reward/mean": 0.25})
        >>> sorted(path.name for path in folder.glob("*.jsonl"))
        ['events.jsonl', 'ledger.jsonl', 'metrics.jsonl']
    """

    def __init__(self, folder: RunFolder, lock: FileLock) -> None:
        """Use `create`."""
        self.folder = folder
        self.resumed = False
        """Whether the folder held a run already."""
        self._lock = lock
        self._pid = os.getpid()
        self._events = JsonLines(folder.events_file)
        self._metrics = JsonLines(folder.metrics_file)
        self._ledger_lines = JsonLines(folder.ledger_file)
        self._ledger = Ledger(LedgerEntry.from_json(line) for line in read_lines(folder.ledger_file))
        self._last_step = max((line["step"] for line in read_lines(folder.metrics_file)), default=0)

    @classmethod
    def create(
        cls,
        folder: Path,
        config_yaml: str,
        *,
        resume: bool = False,
        facts: Mapping[str, Any] | None = None,
    ) -> "RunWriter":
        """Open a run folder for writing; nobody else can until it is closed or this process ends.

        With `resume`, a run that is there is continued (call `truncate_after` next); a missing one is begun.

        Args:
            folder: the run's folder; made when missing.
            config_yaml: the resolved configuration. On resume, what changed is noted in `events.jsonl`.
            resume: continue the run that is there.
            facts: for `environment.json`: device, threads, and what else only the caller knows.

        Raises:
            RunError: a run is there already and `resume` is False; another process writes it; the folder
                cannot be written.
        """
        layout = RunFolder(folder)
        try:
            for part in (folder, layout.rollouts_folder, layout.evals_folder):
                part.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise disk_error(folder, error) from error
        lock = _acquire(layout)
        try:
            existed = layout.is_run
            if existed and not resume:
                raise RunError(
                    f"run folder: {folder}: expected no run there; resume it (--resume) or take another name"
                )
            _remove_leftovers(layout)
            writer = cls(layout, lock)
            writer._begin(config_yaml, existed, facts)
        except BaseException:
            lock.release()
            raise
        return writer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(error)

    def close(self, error: BaseException | None = None) -> None:
        """Record how the run ended, sync, and let go of the folder; idempotent.

        A disk that is still full does not hide the error that is on its way.
        """
        if not self._lock.is_locked or os.getpid() != self._pid:
            return
        try:
            self.write_event("finished", exit_code=_exit_code(error), message=_message(error))
            self.sync()
        except RunError:
            if error is None:
                raise
        finally:
            for file in (self._events, self._metrics, self._ledger_lines):
                file.close()
            self._lock.release()

    @property
    def ledger(self) -> Ledger:
        """What has been accounted for so far."""
        return self._ledger

    @property
    def last_step(self) -> int:
        """The last step that has metrics; 0 before the first."""
        return self._last_step

    def write_metrics(self, step: int, metrics: Mapping[str, float | int | None]) -> dict[str, float | int]:
        """Append the metrics of a step; several calls for one step make one record for readers.

        Returns:
            What was written, without None, for the other sinks.

        Raises:
            RunError: a name is not listed in `metrics.py`, the step is before the last, or the disk is full.
        """
        if step < self._last_step:
            raise RunError(
                f"metrics: step = {step}: expected at least {self._last_step}, the last one written; "
                "call truncate_after to go back"
            )
        checked = checked_metrics(metrics)
        self._metrics.append({"step": step, "time": round(time.time(), 3), **checked})
        self._last_step = step
        return checked

    def write_rollouts(
        self,
        step: int,
        groups: Sequence[ScoredGroup],
        advantages: Sequence[Sequence[float | None]],
        fates: Sequence[Sequence[DropReason | None]],
    ) -> Path:
        """Write every rollout that a step generated, as one file that appears whole.

        Args:
            step: the step.
            groups: all of them, dropped ones included.
            advantages: for each rollout; None for those that had none.
            fates: for each rollout why it was dropped; None for those trained on.

        Raises:
            RunError: the disk is full.
        """
        path = self.folder.rollouts_file(step)
        write_whole(path, groups_to_json(step, groups, advantages, fates))
        return path

    def write_ledger(self, entry: LedgerEntry) -> None:
        """Account for a step.

        Raises:
            RunError: the entry does not balance, repeats a step, or the disk is full.
        """
        self._ledger.add(entry)
        try:
            self._ledger_lines.append(entry.to_json())
        except RunError:
            self._ledger.entries.pop()
            raise

    def write_eval(self, record: EvalRecord, questions: Iterable[EvalQuestion] = ()) -> Path:
        """Write an evaluation: the questions first, so that estimates never stand without them.

        Raises:
            RunError: the disk is full.
        """
        write_whole(self.folder.eval_questions_file(record.step), (item.to_json() for item in questions))
        path = self.folder.eval_file(record.step)
        write_file(path, [dumps(record.to_json())])
        return path

    def write_event(self, event: str, **facts: Any) -> None:
        """Note something that happened to the run as a whole.

        Raises:
            RunError: the disk is full.
        """
        self._events.append({"event": event, "time": round(time.time(), 3), **facts})

    def sync(self) -> None:
        """Wait until everything written is on the disk; call it before a checkpoint is published.

        Raises:
            RunError: the disk fails.
        """
        for file in (self._ledger_lines, self._metrics, self._events):
            file.sync()

    def truncate_after(self, step: int) -> dict[str, int]:
        """Take out everything later than `step`, for a run that resumes from the checkpoint taken there.

        0 takes out all but the evaluation before training. The next `create` finishes what a kill cut short.
        Checkpoints and TensorBoard files are their owners' business.

        Returns:
            How much was taken out: lines of metrics and ledger, files of rollouts and evaluations, and the
            rollouts and tokens that were generated in vain. It also stands in `events.jsonl`.

        Raises:
            RunError: the disk is full; call again.
        """
        lost = total(entry.generated for entry in self._ledger.entries if entry.step > step)
        counts = {
            "metrics": sum(line["step"] > step for line in read_lines(self.folder.metrics_file)),
            "ledger": sum(line["step"] > step for line in read_lines(self.folder.ledger_file)),
            "rollout_files": sum(
                found > step for found in files_by_step(self.folder.rollouts_folder, ".jsonl")
            ),
            "evals": sum(found > step for found in files_by_step(self.folder.evals_folder, ".json")),
            "rollouts": lost.rollouts,
            "tokens": lost.tokens,
        }
        if any(counts.values()):
            self.write_event("truncating", after_step=step, counts=counts)
            self._events.sync()
            self._truncate(step)
            self.write_event("truncated", after_step=step)
        return counts

    def _truncate(self, step: int) -> None:
        self._metrics.keep(lambda line: bool(line["step"] <= step))
        self._ledger_lines.keep(lambda line: bool(line["step"] <= step))
        for found, path in files_by_step(self.folder.rollouts_folder, ".jsonl").items():
            if found > step:
                path.unlink()
        for suffix in (".json", ".questions.jsonl"):  # estimates never stand without their questions
            for found, path in files_by_step(self.folder.evals_folder, suffix).items():
                if found > step:
                    path.unlink()
        self._ledger.entries[:] = [entry for entry in self._ledger.entries if entry.step <= step]
        self._last_step = min(self._last_step, step)

    def _begin(self, config_yaml: str, existed: bool, facts: Mapping[str, Any] | None) -> None:
        self.resumed = existed
        self.write_event(
            "resumed" if existed else "started",
            pid=self._pid,
            host=platform.node(),
            after_step=self._last_step,
        )
        self._finish_truncation()
        if existed and self.folder.config_file.exists():
            before = self.folder.config_file.read_text(encoding="utf-8")
            changes = [
                line
                for line in difflib.unified_diff(
                    before.splitlines(), config_yaml.splitlines(), lineterm="", n=0
                )
                if not line.startswith(("---", "+++", "@@"))
            ]
            if changes:
                self.write_event("config_changed", changes=changes)
        write_file(self.folder.config_file, [config_yaml.encode()])
        write_file(self.folder.environment_file, [dumps(environment(facts))])

    def _finish_truncation(self) -> None:
        last = None
        for line in read_lines(self.folder.events_file):
            if line["event"] in ("truncating", "truncated"):
                last = line
        if last is not None and last["event"] == "truncating":
            self._truncate(last["after_step"])
            self.write_event("truncated", after_step=last["after_step"])


def _acquire(folder: RunFolder) -> FileLock:
    lock = FileLock(folder.lock_file, timeout=_LOCK_PATIENCE_S, thread_local=False)
    try:
        lock.acquire()
    except Timeout:
        holder = holder_of(folder)
        raise RunError(
            f"run folder: {folder.path}: expected no other writer; {holder} holds it: wait for it to "
            "end or stop it, or choose another name"
        ) from None
    except OSError as error:
        raise disk_error(folder.lock_file, error) from error
    return lock


def holder_of(folder: RunFolder) -> str:
    """Who opened the run folder last, in words."""
    session = None
    for line in read_lines(folder.events_file):
        if line["event"] in ("started", "resumed"):
            session = line
    if session is None:
        return "another process"
    return f"process {session['pid']} on {session['host']}"


def _remove_leftovers(folder: RunFolder) -> None:
    """Files that a killed writer was about to rename; only the holder of the lock may do this."""
    for part in (folder.path, folder.rollouts_folder, folder.evals_folder):
        for path in part.glob(".*.part"):
            path.unlink(missing_ok=True)


def _exit_code(error: BaseException | None) -> int:
    match error:
        case None:
            return ExitCode.DONE
        case PeiraError():
            return error.exit_code
        case KeyboardInterrupt() | SystemExit():
            return ExitCode.INTERRUPTED
        case _:
            return 1


def _message(error: BaseException | None) -> str:
    return "" if error is None else f"{type(error).__name__}: {error}"
