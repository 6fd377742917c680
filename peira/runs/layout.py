"""What a run leaves behind: the one description of a run folder.

    runs/NAME/
      config.yaml                    the resolved configuration, every default spelled out
      environment.json               versions, machine, commit, device of the latest session
      events.jsonl                   sessions: started, resumed, truncating, truncated, finished
      metrics.jsonl                  one line per step (several lines of one step are one record)
      ledger.jsonl                   one line per step: what became of every rollout (see `ledger.py`)
      rollouts/step-000012.jsonl     one line per group (see `rollout_file.py`)
      evals/step-000012.json         estimates with intervals (see `evaluation.py`)
      evals/step-000012.questions.jsonl   one line per question
      checkpoints/step-12/           weights and trainer state, written by the trainer
      anchors.safetensors            right answers of the untrained model, where the algorithm wants them
      tensorboard/                   event files
      sinks.json                     which remote runs repeat the metrics, and what they have heard
      report.html                    written by `peira report`
      .lock                          held by the one process that may write

Steps count from 1; number n speaks of the run after n steps, and 0 is before the first.

Everything here is JSON of the strict kind: a number that is not finite is the string "nan", "inf" or "-inf".
A line is written whole or taken back; readers ignore a last line without a line feed. All that looks at a
run (report, dashboard, studies) reads these files and nothing else.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

FORMAT_VERSION = 1
"""Raised when a reader of the old format would misread the new one; stands in `environment.json`."""

_STEP = re.compile(r"step-(\d+)")


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The paths of one run.

    Example:
        >>> RunFolder(Path("runs/gsm8k")).rollouts_file(12).as_posix()
        'runs/gsm8k/rollouts/step-000012.jsonl'
    """

    path: Path

    @property
    def config_file(self) -> Path:
        """The resolved configuration."""
        return self.path / "config.yaml"

    @property
    def environment_file(self) -> Path:
        """Versions, machine, commit and device of the latest session."""
        return self.path / "environment.json"

    @property
    def events_file(self) -> Path:
        """What happened to the run as a whole."""
        return self.path / "events.jsonl"

    @property
    def metrics_file(self) -> Path:
        """One line per step."""
        return self.path / "metrics.jsonl"

    @property
    def ledger_file(self) -> Path:
        """What became of every rollout."""
        return self.path / "ledger.jsonl"

    @property
    def rollouts_folder(self) -> Path:
        """One file per step."""
        return self.path / "rollouts"

    @property
    def evals_folder(self) -> Path:
        """Two files per evaluation."""
        return self.path / "evals"

    @property
    def checkpoints_folder(self) -> Path:
        """One folder per checkpoint; the trainer writes it."""
        return self.path / "checkpoints"

    @property
    def anchors_file(self) -> Path:
        """Right answers of the untrained model, with their log-probs; the trainer writes it."""
        return self.path / "anchors.safetensors"

    @property
    def tensorboard_folder(self) -> Path:
        """TensorBoard's own files."""
        return self.path / "tensorboard"

    @property
    def report_file(self) -> Path:
        """The page that `peira report` writes."""
        return self.path / "report.html"

    @property
    def lock_file(self) -> Path:
        """Held by the one process that may write."""
        return self.path / ".lock"

    def rollouts_file(self, step: int) -> Path:
        """The rollouts that step `step` generated."""
        return self.rollouts_folder / f"step-{step:06d}.jsonl"

    def eval_file(self, step: int) -> Path:
        """The estimates of the evaluation after `step` steps."""
        return self.evals_folder / f"step-{step:06d}.json"

    def eval_questions_file(self, step: int) -> Path:
        """The questions behind those estimates."""
        return self.evals_folder / f"step-{step:06d}.questions.jsonl"

    def checkpoint_folder(self, step: int) -> Path:
        """The checkpoint taken after `step` steps."""
        return self.checkpoints_folder / f"step-{step}"

    @property
    def is_foreign(self) -> bool:
        """Whether something is in the folder and nothing of it is a run's."""
        parts = (
            self.config_file,
            self.events_file,
            self.metrics_file,
            self.ledger_file,
            self.rollouts_folder,
            self.evals_folder,
        )
        return not any(part.exists() for part in parts) and any(self.path.iterdir())

    @property
    def is_run(self) -> bool:
        """Whether a writer was here."""
        return self.config_file.exists() or self.events_file.exists() or self.metrics_file.exists()


def step_of(path: Path) -> int | None:
    """The step that a file or folder name speaks of: `step-000012.jsonl` -> 12; None for other names."""
    found = _STEP.match(path.name)
    return int(found.group(1)) if found else None


def files_by_step(folder: Path, suffix: str) -> dict[int, Path]:
    """The finished `step-N` + suffix files of a folder, in the order of their steps."""
    found = {}
    if folder.is_dir():
        for path in folder.iterdir():
            step = step_of(path)
            if step is not None and path.name == f"step-{step:06d}{suffix}":
                found[step] = path
    return dict(sorted(found.items()))


def temporary_of(path: Path) -> Path:
    """Where a file is written before it takes its name; per process, and never mistaken for the file."""
    return path.with_name(f".{path.name}.{os.getpid()}.part")
