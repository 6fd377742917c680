"""Sinks repeat the metrics elsewhere, once each, and never stop a run."""

import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from peira.config.run import LoggingConfig
from peira.errors import ConfigError
from peira.trainer.sinks import Sinks, open_sinks, require_extras


class Listener:
    """A remote sink whose server keeps what it was sent."""

    def __init__(self, server: dict[str, list[tuple[int, dict[str, float]]]], known: str | None) -> None:
        self.id = known or f"run-{len(server)}"
        self.heard = server.setdefault(self.id, [])
        self.fails = False
        self.closed: list[int] = []

    def write(self, step: int, metrics: Mapping[str, float | int]) -> None:
        if self.fails:
            raise ConnectionError("the server is away")
        self.heard.append((step, dict(metrics)))

    def close(self, exit_code: int = 0) -> None:
        self.closed.append(exit_code)


@pytest.mark.parametrize("name", ["wandb", "trackio", "mlflow"])
def test_a_missing_package_is_named_with_its_extra(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n, *more: None if n == name else find(n, *more))
    with pytest.raises(ConfigError, match=rf"logging: {name} = 'p': .*pip install 'peira\[{name}\]'"):
        require_extras(LoggingConfig(**{name: "p"}))


def test_nothing_switched_on_needs_nothing() -> None:
    require_extras(LoggingConfig(tensorboard=False))


def scalars(folder: Path, name: str) -> list[tuple[int, float]]:
    """What TensorBoard itself reads from all event files together."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(folder))
    accumulator.Reload()
    return [(event.step, round(event.value, 6)) for event in accumulator.Scalars(name)]


def test_tensorboard_has_every_step_once_after_a_kill_and_a_resume(tmp_path: Path) -> None:
    settings = LoggingConfig(tensorboard=True)
    sinks = open_sinks(settings, tmp_path, name="r", config={})
    for step in range(1, 6):
        sinks.write(step, {"reward/mean": step / 10})
    sinks.close()
    # resumed from a checkpoint after step 3: 4 and 5 are taken again
    history = [{"step": step, "time": 1e9 + step, "reward/mean": step / 10} for step in (1, 2, 3)]
    sinks = open_sinks(settings, tmp_path, name="r", config={}, history=history)
    for step in range(4, 7):
        sinks.write(step, {"reward/mean": step / 10})
    sinks.close()
    expected = [(step, step / 10) for step in range(1, 7)]
    assert scalars(tmp_path / "tensorboard", "reward/mean") == expected


def test_a_remote_run_is_continued_and_hears_each_number_once(tmp_path: Path) -> None:
    server: dict[str, list[tuple[int, dict[str, float]]]] = {}
    sinks = Sinks(tmp_path, pytest.fail)
    sinks.open_remote("far", lambda known: Listener(server, known), [])
    sinks.write(1, {"a": 1.0})
    sinks.write(2, {"a": 2.0})
    sinks.write(3, {"a": 3.0})  # then the process is killed: the evaluation after step 3 is not sent
    again = Sinks(tmp_path, pytest.fail)
    history = [{"step": 1, "time": 0.0, "a": 1.0}]  # the checkpoint was after step 1
    again.open_remote("far", lambda known: Listener(server, known), history)
    for step in (2, 3):
        again.write(step, {"a": float(step)})
    again.write(3, {"eval": 0.5})
    again.write(4, {"a": 4.0})
    again.close()
    assert server == {
        "run-0": [(1, {"a": 1.0}), (2, {"a": 2.0}), (3, {"a": 3.0}), (3, {"eval": 0.5}), (4, {"a": 4.0})]
    }


def test_a_sink_that_is_switched_on_later_hears_the_whole_history(tmp_path: Path) -> None:
    server: dict[str, list[tuple[int, dict[str, float]]]] = {}
    sinks = Sinks(tmp_path, pytest.fail)
    history = [{"step": 1, "time": 0.0, "a": 1.0}, {"step": 2, "time": 0.0, "a": 2.0}]
    sinks.open_remote("far", lambda known: Listener(server, known), history)
    assert server == {"run-0": [(1, {"a": 1.0}), (2, {"a": 2.0})]}


def test_a_sink_that_fails_is_dropped_with_one_warning_and_the_others_go_on(tmp_path: Path) -> None:
    server: dict[str, list[tuple[int, dict[str, float]]]] = {}
    warnings: list[str] = []
    sinks = Sinks(tmp_path, warnings.append)
    broken, sound = Listener(server, "broken"), Listener(server, "sound")
    sinks.open("broken", lambda: broken)
    sinks.open("sound", lambda: sound)
    broken.fails = True
    for step in (1, 2):
        sinks.write(step, {"a": 1.0})
    sinks.close(4)
    assert len(warnings) == 1
    assert "broken: ConnectionError: the server is away" in warnings[0]
    assert [step for step, _ in sound.heard] == [1, 2]
    assert sound.closed == [4]
    sinks.close()  # idempotent
    assert sound.closed == [4]


def test_what_a_failing_server_missed_is_sent_when_the_run_resumes(tmp_path: Path) -> None:
    server: dict[str, list[tuple[int, dict[str, float]]]] = {}
    sinks = Sinks(tmp_path, lambda text: None)
    listeners: list[Listener] = []

    def make(known: str | None) -> Listener:
        listeners.append(Listener(server, known))
        return listeners[-1]

    sinks.open_remote("far", make, [])
    sinks.write(1, {"a": 1.0})
    listeners[0].fails = True
    sinks.write(2, {"a": 2.0})
    sinks.write(3, {"a": 3.0})
    history = [{"step": step, "time": 0.0, "a": float(step)} for step in (1, 2, 3)]
    Sinks(tmp_path, pytest.fail).open_remote("far", make, history)
    assert server == {"run-0": [(1, {"a": 1.0}), (2, {"a": 2.0}), (3, {"a": 3.0})]}


def test_a_sink_that_cannot_be_opened_is_a_warning(tmp_path: Path) -> None:
    warnings: list[str] = []
    sinks = Sinks(tmp_path, warnings.append)

    def refuses(known: str | None) -> Listener:
        raise PermissionError("no key")

    sinks.open_remote("far", refuses, [{"step": 1, "a": 1.0}])
    sinks.write(2, {"a": 1.0})
    assert warnings == [
        "far: PermissionError: no key: hears no more of this run; metrics.jsonl has everything"
    ]


def test_a_damaged_memory_begins_remote_runs_anew(tmp_path: Path) -> None:
    (tmp_path / "sinks.json").write_text("{")
    warnings: list[str] = []
    server: dict[str, list[tuple[int, dict[str, float]]]] = {}
    sinks = Sinks(tmp_path, warnings.append)
    sinks.open_remote("far", lambda known: Listener(server, known), [])
    assert "remote runs are begun anew" in warnings[0]
    assert json.loads((tmp_path / "sinks.json").read_text())["far"]["id"] == "run-0"
