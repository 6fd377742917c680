"""Who else is told of the metrics: TensorBoard, W&B, trackio, MLflow.

`metrics.jsonl` is the truth and `RunWriter` keeps it; if that fails the run stops. A sink repeats it
elsewhere: one that fails is dropped with one warning, and the run goes on.

    loop --write(step, metrics)--> Sinks --> TensorBoard (files in the run folder)
                                        `--> W&B, trackio, MLflow (servers that may be slow, full or away)

On resume a sink is given the history of the folder. TensorBoard's files are written anew from it, so nothing
that a kill lost is missing and nothing is there twice. The others continue the same remote run and are told
only what `sinks.json` does not say they have heard already.
"""

import importlib.util
import json
import math
import secrets
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from peira.config.run import LoggingConfig
from peira.errors import ConfigError, ExitCode, RunError
from peira.runs.jsonl import dumps, write_file
from peira.runs.layout import RunFolder
from peira.runs.metrics import RESERVED

Metrics = Mapping[str, float | int]


class MetricSink(Protocol):
    """Is told every step's metrics once, in order."""

    def write(self, step: int, metrics: Metrics) -> None:
        """Take the metrics of a step; a step may come in several parts."""
        ...

    def close(self, exit_code: int = ExitCode.DONE) -> None:
        """Say how the run ended; idempotent."""
        ...


def require_extras(logging: LoggingConfig) -> None:
    """Check that every sink that is switched on is installed; call it before anything heavy starts.

    Raises:
        ConfigError: names the extra that is missing.
    """
    for name in ("wandb", "trackio", "mlflow"):
        if getattr(logging, name) is not None and importlib.util.find_spec(name) is None:
            raise ConfigError(
                f"logging: {name} = {getattr(logging, name)!r}: expected the package {name!r}: "
                f"pip install 'peira[{name}]', or leave the setting out"
            )


def open_sinks(
    logging: LoggingConfig,
    folder: Path,
    *,
    name: str,
    config: Mapping[str, Any],
    history: Sequence[Metrics] = (),
    warn: Callable[[str], None] = warnings.warn,
) -> "Sinks":
    """Open every sink that is switched on.

    Args:
        logging: which.
        folder: the run's folder.
        name: of the run, for remote pages.
        config: the resolved configuration, shown on remote pages.
        history: on resume, what `RunReader.metrics` gives after the truncation; empty for a new run.
        warn: told once about each sink that fails.

    Raises:
        ConfigError: a package is missing.
    """
    require_extras(logging)
    sinks = Sinks(folder, warn)
    if logging.tensorboard:
        tensorboard = RunFolder(folder).tensorboard_folder
        sinks.open("tensorboard", lambda: TensorBoardSink(tensorboard, history))
    if (wandb := logging.wandb) is not None:
        sinks.open_remote("wandb", lambda known: WandbSink(wandb, name, config, folder, known), history)
    if (trackio := logging.trackio) is not None:
        sinks.open_remote("trackio", lambda known: TrackioSink(trackio, name, config, known), history)
    if (mlflow := logging.mlflow) is not None:
        sinks.open_remote("mlflow", lambda known: MlflowSink(mlflow, name, config, known), history)
    return sinks


class RemoteSink(MetricSink, Protocol):
    """A sink whose run lives elsewhere and outlives this process."""

    @property
    def id(self) -> str:
        """Under which a later session finds the same remote run."""
        ...


class Sinks:
    """Several sinks as one that never raises."""

    def __init__(self, folder: Path, warn: Callable[[str], None]) -> None:
        self._path = folder / "sinks.json"
        self._warn = warn
        self._open: dict[str, MetricSink] = {}
        self._memory: dict[str, dict[str, Any]] = {}
        """By remote sink: the id of its run, the last step it was sent, and that step's metrics."""
        try:
            self._memory = json.loads(self._path.read_text())
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            warn(f"{self._path}: {error}: remote runs are begun anew")

    @property
    def names(self) -> list[str]:
        """The sinks that still listen."""
        return list(self._open)

    def open(self, name: str, make: Callable[[], MetricSink]) -> None:
        """Add a sink, or warn that it cannot be had."""
        try:
            self._open[name] = make()
        except Exception as error:  # whatever a foreign client raises, the run goes on
            self._warn(_gone(name, error))

    def open_remote(
        self, name: str, make: Callable[[str | None], RemoteSink], history: Sequence[Metrics]
    ) -> None:
        """Add a sink that continues its remote run, and tell it what it has not heard."""
        memory = self._memory.get(name, {"id": None, "step": -1, "metrics": []})

        def made() -> RemoteSink:
            sink = make(memory["id"])
            self._memory[name] = {**memory, "id": sink.id}
            return sink

        self.open(name, made)
        for record in history:
            step = int(record["step"])
            self._tell(name, step, {key: value for key, value in record.items() if key not in RESERVED})
        self._remember()

    def write(self, step: int, metrics: Metrics) -> None:
        """Tell every sink; drop those that fail."""
        for name in self.names:
            self._tell(name, step, metrics)
        self._remember()

    def close(self, exit_code: int = ExitCode.DONE) -> None:
        """Close every sink; one that fails is only warned about."""
        while self._open:
            name, sink = self._open.popitem()
            try:
                sink.close(exit_code)
            except Exception as error:
                self._warn(_gone(name, error))

    def _tell(self, name: str, step: int, metrics: Metrics) -> None:
        memory = self._memory.get(name)
        heard: set[str] = set()
        if memory is not None:
            if step < memory["step"]:
                return
            heard |= set(memory["metrics"]) if step == memory["step"] else set()
            metrics = {key: value for key, value in metrics.items() if key not in heard}
        if name not in self._open or not metrics:
            return
        try:
            self._open[name].write(step, metrics)
        except Exception as error:
            del self._open[name]
            self._warn(_gone(name, error))
            return
        if memory is not None:
            memory |= {"step": step, "metrics": sorted(heard | set(metrics))}

    def _remember(self) -> None:
        if self._memory:
            try:
                write_file(self._path, [dumps(self._memory)])
            except RunError as error:  # the run itself will notice a full disk
                self._warn(str(error))


class TensorBoardSink:
    """Event files in the run folder, written anew from the history when a run resumes."""

    def __init__(self, folder: Path, history: Sequence[Metrics] = ()) -> None:
        from torch.utils.tensorboard.writer import SummaryWriter

        for old in folder.glob("events.out.tfevents.*"):
            old.unlink()
        self._writer = SummaryWriter(str(folder), flush_secs=30)
        for record in history:
            self._write(record, int(record["step"]), record.get("time", time.time()))
        self._writer.flush()

    def write(self, step: int, metrics: Metrics) -> None:
        """One scalar per metric."""
        self._write(metrics, step, time.time())

    def _write(self, metrics: Metrics, step: int, wall_time_s: float) -> None:
        for name, value in metrics.items():
            if name not in RESERVED:
                self._writer.add_scalar(name, value, step, walltime=wall_time_s)

    def close(self, exit_code: int = ExitCode.DONE) -> None:
        """Flush and close."""
        self._writer.close()


class WandbSink:
    """Weights & Biases; WANDB_MODE=offline and the other variables of its client are honoured."""

    def __init__(
        self, project: str, name: str, config: Mapping[str, Any], folder: Path, known: str | None
    ) -> None:
        import wandb

        self._run = wandb.init(
            project=project,
            name=name,
            id=known,
            resume="allow" if known else None,
            config=dict(config),
            dir=str(folder),
        )
        self.id = str(self._run.id)

    def write(self, step: int, metrics: Metrics) -> None:
        """One row of the run's history."""
        self._run.log(dict(metrics), step=step)

    def close(self, exit_code: int = ExitCode.DONE) -> None:
        """Upload what is left and mark the run finished or failed."""
        self._run.finish(exit_code=int(exit_code))


class TrackioSink:
    """Trackio; its runs are known by name, so the name carries a random part that stays with the folder."""

    def __init__(self, project: str, name: str, config: Mapping[str, Any], known: str | None) -> None:
        import trackio

        self.id = known or f"{name}-{secrets.token_hex(4)}"
        self._run = trackio.init(
            project=project,
            name=self.id,
            config=dict(config),
            resume="must" if known else "never",
            embed=False,
            auto_log_cpu=False,
        )

    def write(self, step: int, metrics: Metrics) -> None:
        """One row."""
        self._run.log(dict(metrics), step=step)

    def close(self, exit_code: int = ExitCode.DONE) -> None:
        """Send what is left."""
        self._run.finish()


class MlflowSink:
    """MLflow, at the server that MLFLOW_TRACKING_URI names."""

    def __init__(self, experiment: str, name: str, config: Mapping[str, Any], known: str | None) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param

        self._client = MlflowClient()
        self._metric = Metric
        if known is None:
            found = self._client.get_experiment_by_name(experiment)
            experiment_id = found.experiment_id if found else self._client.create_experiment(experiment)
            known = self._client.create_run(experiment_id, run_name=name).info.run_id
            settings = [Param(key, str(value)[:500]) for key, value in _flat(config)]
            for start in range(0, len(settings), 100):
                self._client.log_batch(known, params=settings[start : start + 100])
        else:
            self._client.update_run(known, status="RUNNING")
        self.id = str(known)

    def write(self, step: int, metrics: Metrics) -> None:
        """One batch; names keep to the characters that MLflow allows, infinities are left out."""
        now_ms = int(time.time() * 1000)
        values = [
            self._metric(name, float(value), now_ms, step)
            for name, value in metrics.items()
            if not math.isinf(value)
        ]
        self._client.log_batch(self.id, metrics=values)

    def close(self, exit_code: int = ExitCode.DONE) -> None:
        """Mark the run finished, killed or failed."""
        status: dict[int, str] = {ExitCode.DONE: "FINISHED", ExitCode.INTERRUPTED: "KILLED"}
        self._client.set_terminated(self.id, status.get(exit_code, "FAILED"))


def _flat(config: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Nested settings as dotted keys."""
    rows: list[tuple[str, Any]] = []
    for key, value in config.items():
        place = f"{prefix}{key}"
        rows += _flat(value, f"{place}.") if isinstance(value, Mapping) else [(place, value)]
    return rows


def _gone(name: str, error: Exception) -> str:
    return f"{name}: {type(error).__name__}: {error}: hears no more of this run; metrics.jsonl has everything"
