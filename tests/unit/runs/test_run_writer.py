"""One writer, whole lines, exact truncation, and honest errors."""

import json
import math
import os
import resource
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from peira.errors import ExitCode, RunError, StopRun
from peira.runs.evaluation import Estimate, EvalCompletion, EvalQuestion, EvalRecord
from peira.runs.jsonl import JsonLines, read_lines
from peira.runs.ledger import Count, DropReason, LedgerEntry
from peira.runs.reader import RunReader, RunState
from peira.runs.writer import RunWriter
from tests.unit.runs.records import scored_group


def evaluation(step: int, value: float = 0.5) -> EvalRecord:
    return EvalRecord(
        step=step,
        policy_version=step,
        headline="accuracy",
        estimates={"accuracy": Estimate(value=value, low=value - 0.1, high=value + 0.1, num_questions=20)},
        num_questions=20,
        num_completions=20,
    )


def write_step(run: RunWriter, step: int, reward: float = 0.5) -> None:
    groups = [scored_group([1.0, 0.0], num_tokens=step)]
    run.write_rollouts(step, groups, [[0.5, -0.5]], [[None, None]])
    run.write_ledger(LedgerEntry.of(step, groups, [[None, None]]))
    run.write_metrics(step, {"reward/mean": reward})


def test_a_finished_run_reads_back(tmp_path: Path) -> None:
    completion = EvalCompletion(
        text="4",
        scores={"math": 1.0},
        status={"math": "scored"},
        right=True,
        num_tokens=1,
        stop_reason="end",
    )
    question = EvalQuestion(
        task_id="sum-1",
        source="sums",
        prompt="2 + 2 = ?",
        answer="4",
        completions=(completion,),
    )
    with RunWriter.create(tmp_path / "run", "steps: 2\n", facts={"device": "cpu"}) as run:
        run.write_eval(evaluation(0), [question])
        for step in (1, 2):
            write_step(run, step, reward=step / 4)
        run.write_metrics(2, {"eval/accuracy": 0.75})
    reader = RunReader(tmp_path / "run")
    assert reader.config_text() == "steps: 2\n"
    assert reader.environment()["device"] == "cpu"
    assert reader.series("reward/mean") == ([1, 2], [0.25, 0.5])
    assert reader.series("eval/accuracy") == ([2], [0.75])
    assert reader.metric_names() == ["eval/accuracy", "reward/mean"]
    assert reader.ledger().total.trained == Count(4, 6)  # 2 rollouts of 1 token, 2 of 2
    assert reader.rollout_steps() == [1, 2]
    assert [group.index for group in reader.rollouts(2)] == [0]
    assert reader.evals() == [evaluation(0)]
    assert list(reader.eval_questions(0)) == [question]
    assert reader.ending().state is RunState.FINISHED


def test_an_existing_run_is_not_written_over(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path, "a: 1") as run:
        run.write_metrics(1, {"reward/mean": 0.5})
    with pytest.raises(RunError, match="expected no run there; resume it"):
        RunWriter.create(tmp_path, "a: 1")
    with RunWriter.create(tmp_path, "a: 1", resume=True) as run:  # the refusal let go of the lock
        assert run.resumed
        assert run.last_step == 1


def test_resuming_where_nothing_is_begins(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "new", "a: 1", resume=True) as run:
        assert not run.resumed


def test_a_second_writer_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    program = """
        import sys, time
        from pathlib import Path
        from peira.runs.writer import RunWriter
        run = RunWriter.create(Path(sys.argv[1]), "a: 1")
        print("open", flush=True)
        time.sleep(60)
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "open\n"
            with pytest.raises(RunError, match=rf"process {holder.pid} on .* holds it"):
                RunWriter.create(tmp_path, "a: 1", resume=True)
            assert RunReader(tmp_path).ending().state is RunState.RUNNING
        finally:
            holder.kill()
    assert RunReader(tmp_path).ending().state is RunState.KILLED
    with RunWriter.create(tmp_path, "a: 1", resume=True) as run:
        assert run.resumed


def test_children_of_a_killed_writer_do_not_hold_the_folder(tmp_path: Path) -> None:
    """Verifier workers are forked from the writer and may outlive a kill -9."""
    program = """
        import os, sys, time
        from pathlib import Path
        from peira.runs.writer import RunWriter
        run = RunWriter.create(Path(sys.argv[1]), "a: 1")
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
        print(child, flush=True)
        time.sleep(60)
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        orphan = int(holder.stdout.readline())
        holder.kill()
        holder.wait()
        try:
            os.kill(orphan, 0)  # it lives
            with RunWriter.create(tmp_path, "a: 1", resume=True) as run:
                assert run.resumed
        finally:
            os.kill(orphan, signal.SIGKILL)


def test_looking_at_a_folder_does_not_keep_a_writer_out(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path, "a: 1"):
        pass
    for _ in range(20):
        assert RunReader(tmp_path).ending().state is RunState.FINISHED
    with RunWriter.create(tmp_path, "a: 1", resume=True):
        assert RunReader(tmp_path).ending().state is RunState.RUNNING


def test_metrics_do_not_go_back(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path, "a: 1") as run:
        run.write_metrics(3, {"reward/mean": 0.5})
        with pytest.raises(RunError, match="step = 2: expected at least 3"):
            run.write_metrics(2, {"reward/mean": 0.5})


def test_numbers_that_are_not_finite_are_strict_json_and_come_back(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path, "a: 1") as run:
        run.write_metrics(1, {"policy/loss": math.nan, "policy/grad_norm": math.inf, "reward/mean": None})
    (line,) = (tmp_path / "metrics.jsonl").read_text().splitlines()
    record = json.loads(line, parse_constant=pytest.fail)
    assert record["policy/loss"] == "nan"
    assert "reward/mean" not in record
    (read,) = RunReader(tmp_path).metrics()
    assert math.isnan(read["policy/loss"])
    assert read["policy/grad_norm"] == math.inf


def test_a_half_written_last_line_is_ignored_by_readers_and_cut_off_by_the_next_writer(
    tmp_path: Path,
) -> None:
    with RunWriter.create(tmp_path, "a: 1") as run:
        run.write_metrics(1, {"reward/mean": 0.25})
    whole = (tmp_path / "metrics.jsonl").read_bytes()
    (tmp_path / "metrics.jsonl").write_bytes(whole + b'{"step":2,"reward/me')
    assert RunReader(tmp_path).series("reward/mean") == ([1], [0.25])
    with RunWriter.create(tmp_path, "a: 1", resume=True) as run:
        run.write_metrics(2, {"reward/mean": 0.5})
    assert RunReader(tmp_path).series("reward/mean") == ([1, 2], [0.25, 0.5])


def test_a_partial_line_longer_than_a_block_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"a":1}\n' + b"x" * 200_000)
    JsonLines(path).close()
    assert path.read_bytes() == b'{"a":1}\n'


def test_a_broken_line_in_the_middle_is_an_error_with_its_number(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"step": \n{"step": 3}\n')
    with pytest.raises(RunError, match=r"metrics\.jsonl:2: expected one JSON object per line"):
        RunReader(tmp_path).metrics()


def test_text_that_utf8_cannot_carry_survives(tmp_path: Path) -> None:
    lines = JsonLines(tmp_path / "x.jsonl")
    hostile = "half a pair \ud800, \u2028, \x00, \r\n, 🦜"
    lines.append({"text": hostile})
    lines.close()
    (tmp_path / "x.jsonl").read_text(encoding="utf-8")  # the file itself is plain UTF-8
    assert next(read_lines(tmp_path / "x.jsonl"))["text"] == hostile


def run_of(steps: int, folder: Path) -> None:
    with RunWriter.create(folder, "a: 1") as run:
        run.write_eval(evaluation(0))
        for step in range(1, steps + 1):
            write_step(run, step)
            if step % 2 == 0:
                run.write_eval(evaluation(step))


def test_truncation_leaves_what_the_run_had_at_the_checkpoint(tmp_path: Path) -> None:
    run_of(6, tmp_path / "long")
    run_of(4, tmp_path / "short")
    with RunWriter.create(tmp_path / "long", "a: 1", resume=True) as run:
        counts = run.truncate_after(4)
        assert run.last_step == 4
        write_step(run, 5)  # the ledger and the metrics accept the next step again
        run.truncate_after(4)
    # steps 5 and 6 had 2 rollouts each, of 5 and 6 tokens; one evaluation, after step 6
    assert counts == {"metrics": 2, "ledger": 2, "rollout_files": 2, "evals": 1, "rollouts": 4, "tokens": 22}
    long, short = RunReader(tmp_path / "long"), RunReader(tmp_path / "short")
    assert [{**record, "time": 0} for record in long.metrics()] == [
        {**record, "time": 0} for record in short.metrics()
    ]
    assert long.ledger().entries == short.ledger().entries
    assert long.rollout_steps() == short.rollout_steps() == [1, 2, 3, 4]
    assert [record.step for record in long.evals()] == [0, 2, 4]
    assert sorted(path.name for path in (tmp_path / "long/evals").iterdir()) == sorted(
        path.name for path in (tmp_path / "short/evals").iterdir()
    )
    # 4 rollouts the first time, 2 of 5 tokens the second
    lost = long.truncations()
    assert (lost.times, lost.rollouts, lost.tokens) == (2, 6, 32)


def test_truncating_to_the_start_keeps_the_evaluation_before_training(tmp_path: Path) -> None:
    run_of(2, tmp_path)
    with RunWriter.create(tmp_path, "a: 1", resume=True) as run:
        run.truncate_after(0)
    reader = RunReader(tmp_path)
    assert reader.metrics() == []
    assert [record.step for record in reader.evals()] == [0]


def test_nothing_to_truncate_leaves_no_trace(tmp_path: Path) -> None:
    run_of(2, tmp_path)
    with RunWriter.create(tmp_path, "a: 1", resume=True) as run:
        assert not any(run.truncate_after(2).values())
    assert RunReader(tmp_path).truncations().times == 0


class Killed(BaseException):
    """Stands for a kill -9: nothing in the writer catches it."""


@pytest.mark.parametrize("moment", ["os.replace", "Path.unlink"])
@pytest.mark.parametrize("nth", [0, 1])
def test_a_kill_in_the_middle_of_a_truncation_is_finished_by_the_next_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, nth: int
) -> None:
    run_of(6, tmp_path)
    run = RunWriter.create(tmp_path, "a: 1", resume=True)
    calls = iter(range(100))

    def dies(*words: object, **more: object) -> None:
        if next(calls) == nth:
            raise Killed
        original(*words, **more)

    with monkeypatch.context() as patch:
        owner = os if moment == "os.replace" else Path
        original = getattr(owner, moment.split(".")[1])
        patch.setattr(owner, moment.split(".")[1], dies)
        with pytest.raises(Killed):
            run.truncate_after(3)
    run.close(Killed())
    with RunWriter.create(tmp_path, "a: 1", resume=True) as run:
        assert run.last_step == 3
        assert not any(run.truncate_after(3).values())
    reader = RunReader(tmp_path)
    assert [int(record["step"]) for record in reader.metrics()] == [1, 2, 3]
    assert [entry.step for entry in reader.ledger().entries] == [1, 2, 3]
    assert reader.rollout_steps() == [1, 2, 3]
    assert [record.step for record in reader.evals()] == [0, 2]
    # steps 4, 5, 6: 2 rollouts each of 4 + 5 + 6 tokens, counted once
    assert (reader.truncations().times, reader.truncations().rollouts, reader.truncations().tokens) == (
        1,
        6,
        30,
    )


@contextmanager
def file_size_limit(size_bytes: int) -> Iterator[None]:
    """The kernel refuses to let any file of this process grow beyond this: a full disk without a disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_names_the_file_and_leaves_whole_lines(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path, "a: 1") as run:

        def until_full() -> None:
            for step in range(1, 100):
                run.write_metrics(step, {"reward/mean": 0.5})

        with (
            file_size_limit(1500),
            pytest.raises(RunError, match=r"metrics\.jsonl: .*expected room to write"),
        ):
            until_full()
        written = run.last_step
        assert 5 < written < 99
        steps, _ = RunReader(tmp_path).series("reward/mean")
        assert steps == list(range(1, written + 1))
        assert (tmp_path / "metrics.jsonl").read_bytes().endswith(b"\n")
        run.write_metrics(written + 1, {"reward/mean": 0.5})  # there is room again
    assert RunReader(tmp_path).series("reward/mean")[0][-1] == written + 1


def test_a_full_disk_leaves_no_half_rollout_file(tmp_path: Path) -> None:
    groups = [scored_group([1.0, 0.0], num_tokens=2000)]
    with RunWriter.create(tmp_path, "a: 1") as run:
        run.write_rollouts(1, groups, [[0.5, -0.5]], [[None, None]])
        for step in (1, 2):  # a new file, and one that is there already
            with file_size_limit(1500), pytest.raises(RunError, match=rf"step-00000{step}\.jsonl: .*room"):
                run.write_rollouts(step, groups, [[0.5, -0.5]], [[None, None]])
        assert os.listdir(tmp_path / "rollouts") == ["step-000001.jsonl"]
        assert len(list(RunReader(tmp_path).rollouts(1))) == 1


def test_a_ledger_line_that_did_not_fit_is_not_counted(tmp_path: Path) -> None:
    entry = LedgerEntry(step=1, generated=Count(1, 1), trained=Count(1, 1))
    with RunWriter.create(tmp_path, "a: 1") as run:
        with file_size_limit(10), pytest.raises(RunError, match=r"ledger\.jsonl"):
            run.write_ledger(entry)
        assert run.ledger.entries == []
        run.write_ledger(entry)
    assert RunReader(tmp_path).ledger().entries == [entry]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_no_space_left_on_device_is_said_in_our_words(tmp_path: Path) -> None:
    link = tmp_path / "metrics.jsonl"
    link.symlink_to("/dev/full")
    lines = JsonLines(link)
    with pytest.raises(RunError, match=r"metrics\.jsonl: No space left on device: .*free some space"):
        lines.append({"step": 1})
    lines.close()


def test_a_folder_that_cannot_be_made_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="expected a writable run folder"):
        RunWriter.create(tmp_path / "file" / "run", "a: 1")


@pytest.mark.parametrize(
    ("error", "state", "code"),
    [
        (StopRun("no signal in 20 steps", ExitCode.COLLAPSE), RunState.STOPPED, 4),
        (KeyboardInterrupt(), RunState.STOPPED, 130),
        (ZeroDivisionError("x"), RunState.STOPPED, 1),
    ],
)
def test_how_a_run_ended_is_recorded(
    tmp_path: Path, error: BaseException, state: RunState, code: int
) -> None:
    with pytest.raises(type(error)), RunWriter.create(tmp_path, "a: 1"):
        raise error
    ending = RunReader(tmp_path).ending()
    assert (ending.state, ending.exit_code) == (state, code)
    assert type(error).__name__ in ending.message


def test_changed_settings_are_noted_on_resume(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path, "steps: 10\nseed: 0\n"):
        pass
    with RunWriter.create(tmp_path, "steps: 20\nseed: 0\n", resume=True):
        pass
    reader = RunReader(tmp_path)
    (event,) = [event for event in reader.events() if event["event"] == "config_changed"]
    assert event["changes"] == ["-steps: 10", "+steps: 20"]
    assert reader.config_text() == "steps: 20\nseed: 0\n"


def test_leftovers_of_a_killed_writer_are_swept_away(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path, "a: 1"):
        pass
    (tmp_path / "rollouts" / ".step-000001.jsonl.999.part").write_text("half")
    assert RunReader(tmp_path).rollout_steps() == []
    with RunWriter.create(tmp_path, "a: 1", resume=True):
        assert os.listdir(tmp_path / "rollouts") == []


def test_a_writer_that_was_killed_at_any_moment_leaves_whole_lines_only(tmp_path: Path) -> None:
    program = """
        import sys
        from pathlib import Path
        from peira.runs.writer import RunWriter
        run = RunWriter.create(Path(sys.argv[1]), "a: 1", resume=True)
        step = run.last_step
        print("open", flush=True)
        while True:
            step += 1
            run.write_metrics(step, {"reward/mean": step / 1e6})
    """
    for pause_s in (0.0, 0.02, 0.05):
        command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "open\n"
            time.sleep(pause_s)
            process.kill()
    steps, values = RunReader(tmp_path).series("reward/mean")
    assert steps == list(range(1, len(steps) + 1))
    assert values == [step / 1e6 for step in steps]


def test_drop_reasons_are_words_people_read_in_the_file(tmp_path: Path) -> None:
    groups = [scored_group([0.0, 0.0])]
    wrong = DropReason.COLLAPSED_ALL_WRONG
    with RunWriter.create(tmp_path, "a: 1") as run:
        run.write_ledger(LedgerEntry.of(1, groups, [[wrong, wrong]]))
    (line,) = read_lines(tmp_path / "ledger.jsonl")
    assert line == {
        "step": 1,
        "rollouts": {"generated": 2, "trained": 0, "dropped": {"collapsed_all_wrong": 2}, "pending": 0},
        "tokens": {"generated": 6, "trained": 0, "dropped": {"collapsed_all_wrong": 6}, "pending": 0},
    }
