"""Whatever a verifier does to its process ends as a verdict on the one attempt it was judging."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from peira.errors import VerifierError
from peira.types.task import Task
from peira.types.verdict import Attempt, Verdict, VerdictStatus
from peira.verifiers.pool import Job, WorkerPool
from tests.unit.verifiers.hostile import FailsToLoad, Obedient, SlowToLoad, Unloadable

TASK = Task(id="t", prompt="?", answer="1")
LIMIT_S = 3.0  # long enough for a loaded machine to start a process in


def job(text, **settings):
    return Job(verifier="it", task=TASK, attempt=Attempt(text=text), **settings)


@pytest.fixture(scope="module")
def pool():
    with WorkerPool(
        {"it": Obedient(), "unloadable": Unloadable()},
        workers=2,
        timeout_s=LIMIT_S,
        memory_limit_bytes=512 * 1024**2,
    ) as pool:
        yield pool


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_verdicts_come_in_the_order_of_the_jobs(pool):
    scores = [index / 1000 for index in range(1000)]
    verdicts = pool.judge_blocking([job(f"score {score}") for score in scores])
    assert [verdict.score for verdict in verdicts] == scores


@pytest.mark.parametrize(
    ("action", "status", "detail"),
    [
        ("raise", VerdictStatus.ERROR, "RuntimeError: by request"),
        ("exit", VerdictStatus.ERROR, "SystemExit"),
        ("base", VerdictStatus.ERROR, "BaseException: not an Exception"),
        ("nan", VerdictStatus.ERROR, "score = nan"),
        ("two", VerdictStatus.ERROR, "score = 2.0"),
        ("bare", VerdictStatus.ERROR, "returned 1.0: expected a Verdict"),
        ("none", VerdictStatus.ERROR, "returned None: expected a Verdict"),
        ("forged", VerdictStatus.ERROR, "score = nan"),
        ("memory", VerdictStatus.ERROR, "MemoryError"),
        ("os_exit", VerdictStatus.ERROR, "exit code 3"),
        ("suicide", VerdictStatus.ERROR, "SIGKILL"),
        ("segfault", VerdictStatus.ERROR, "SIGSEGV"),
        ("hang", VerdictStatus.TIMEOUT, "longer than 3 s"),
        ("hang_in_c", VerdictStatus.TIMEOUT, "longer than 3 s"),
    ],
)
def test_a_verifier_that_breaks_loses_its_own_attempt_only(pool, action, status, detail):
    texts = ["score 0.25", "score 0.75", action, "score 0.5", "sleep 0.05", "score 0.125"]
    started = time.monotonic()
    verdicts = pool.judge_blocking([job(text) for text in texts])
    assert time.monotonic() - started < LIMIT_S + 10
    assert (verdicts[2].score, verdicts[2].status) == (None, status)
    assert detail in verdicts[2].detail
    assert [verdicts[index].score for index in (0, 1, 3, 4, 5)] == [0.25, 0.75, 0.5, 1.0, 0.125]


@pytest.mark.parametrize("action", ["print", "huge", "fork_and_return", "late_bomb"])
def test_noise_and_things_left_behind_harm_nobody(pool, action):
    verdicts = pool.judge_blocking([job("score 0.25"), job(action), job("sleep 0.5"), job("score 0.75")])
    assert [verdict.score for verdict in verdicts] == [0.25, 1.0, 1.0, 0.75]
    assert all(len(verdict.detail) <= 500 for verdict in verdicts)


@pytest.mark.parametrize("action", ["fork_and_hang", "fork_and_die"])
def test_processes_that_a_verifier_started_die_with_its_worker(pool, action, tmp_path):
    note = tmp_path / "pid"
    verdicts = pool.judge_blocking([job("score 1"), job(f"{action} {note}"), job("score 1")])
    assert verdicts[1].score is None
    assert [verdicts[0].score, verdicts[2].score] == [1.0, 1.0]
    deadline = time.monotonic() + 10
    while is_alive(int(note.read_text())) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_alive(int(note.read_text()))


def test_memory_that_leaks_is_given_back_by_a_new_worker():
    # 60 x 50 MB would be 3 GB; the limit is 0.5 GB, and a worker that holds half of it is replaced
    with WorkerPool({"it": Obedient()}, workers=1, timeout_s=30, memory_limit_bytes=512 * 1024**2) as pool:
        verdicts = pool.judge_blocking([job("leak 50000000") for _ in range(60)])
        assert [verdict.score for verdict in verdicts] == [1.0] * 60
        assert pool.restarts >= 5


def test_the_limit_counts_an_attempts_own_time_and_not_its_wait():
    # each takes 0.4 s of a 2 s limit; the last waits 4 s for the others
    with WorkerPool({"it": Obedient()}, workers=1, timeout_s=2.0) as pool:
        verdicts = pool.judge_blocking([job("sleep 0.4") for _ in range(10)])
    assert [verdict.score for verdict in verdicts] == [1.0] * 10


def test_loading_a_verifier_is_not_charged_to_the_attempt():
    with WorkerPool({"it": SlowToLoad()}, workers=1, timeout_s=2.0) as pool:
        assert pool.judge_blocking([job("score 1")])[0].score == 1.0


def test_one_attempt_may_have_a_limit_of_its_own(pool):
    started = time.monotonic()
    verdicts = pool.judge_blocking([job("hang", timeout_s=0.3), job("score 1")])
    assert time.monotonic() - started < LIMIT_S
    assert [verdict.status for verdict in verdicts] == [VerdictStatus.TIMEOUT, VerdictStatus.SCORED]


def test_a_verifier_that_cannot_be_loaded_says_why_for_each_attempt(pool):
    jobs = [Job(verifier="unloadable", task=TASK, attempt=Attempt(text="x"))] * 3
    for verdict in pool.judge_blocking(jobs):
        assert verdict.status is VerdictStatus.ERROR
        assert "could not be loaded: ImportError: no such library" in verdict.detail


@pytest.mark.parametrize(
    ("way", "load_timeout_s", "detail"),
    [("die", 60.0, "exit code 5"), pytest.param("hang", 5.0, "longer than 5 s", marks=pytest.mark.slow)],
)
def test_a_verifier_that_takes_workers_down_while_loading_is_given_up_on(
    way, load_timeout_s, detail, tmp_path
):
    notes = tmp_path / "tries"
    verifiers = {"it": FailsToLoad(way=way, notes=str(notes)), "good": Obedient()}
    with WorkerPool(verifiers, workers=1, timeout_s=5, load_timeout_s=load_timeout_s) as pool:
        jobs = [job("score 1")] * 50 + [Job(verifier="good", task=TASK, attempt=Attempt(text="score 1"))] * 5
        verdicts = pool.judge_blocking(jobs)
    assert [verdict.status for verdict in verdicts[:50]] == [VerdictStatus.ERROR] * 50
    assert all(
        "it cannot be loaded: " in verdict.detail and detail in verdict.detail for verdict in verdicts[:50]
    )
    assert [verdict.score for verdict in verdicts[50:]] == [1.0] * 5
    assert notes.read_text().count("try") == 3


def test_async_callers_share_the_pool_without_mixing_their_verdicts(pool):
    async def one(number):
        return await pool.judge([job(f"score {number / 10}")] * 50)

    async def all_of_them():
        return await asyncio.gather(*(one(number) for number in range(10)))

    for number, verdicts in enumerate(asyncio.run(all_of_them())):
        assert [verdict.score for verdict in verdicts] == [number / 10] * 50


def test_a_cancelled_call_leaves_the_pool_usable(pool):
    async def cancelled():
        task = asyncio.create_task(pool.judge([job("sleep 0.2")] * 200))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    started = time.monotonic()
    assert pool.judge_blocking([job("score 1")])[0].score == 1.0
    assert time.monotonic() - started < 10  # 200 x 0.2 s were dropped


def test_the_queue_is_bounded_and_callers_wait_for_room():
    with WorkerPool({"it": Obedient()}, workers=1, timeout_s=10, max_queued=5) as pool:

        async def watch():
            calls = [asyncio.create_task(pool.judge([job("sleep 0.02")] * 5)) for _ in range(6)]
            highest = 0
            while not all(call.done() for call in calls):
                highest = max(highest, pool.queued)
                await asyncio.sleep(0.002)
            return highest, [verdict.score for call in calls for verdict in call.result()]

        highest, scores = asyncio.run(watch())
    assert highest <= 5
    assert scores == [1.0] * 30


def test_closing_ends_what_is_being_judged():
    pool = WorkerPool({"it": Obedient()}, workers=1, timeout_s=60)

    async def closed_midway():
        call = asyncio.create_task(pool.judge([job("hang"), job("score 1")]))
        await asyncio.sleep(1.0)
        await asyncio.to_thread(pool.close)
        return await call

    started = time.monotonic()
    verdicts = asyncio.run(closed_midway())
    assert time.monotonic() - started < 20
    assert [verdict.status for verdict in verdicts] == [VerdictStatus.ERROR] * 2
    pool.close()
    with pytest.raises(VerifierError, match="closed"):
        pool.judge_blocking([job("score 1")])


def test_no_jobs_are_no_verdicts(pool):
    assert pool.judge_blocking([]) == []


def test_an_unknown_verifier_is_refused_by_name(pool):
    with pytest.raises(VerifierError, match="verifier = 'nobody'"):
        pool.judge_blocking([Job(verifier="nobody", task=TASK, attempt=Attempt(text="x"))])


class _Unpicklable:
    def __init__(self) -> None:
        self.function = lambda: None

    def verify(self, task, attempt):
        return Verdict(score=1.0)


def test_a_verifier_that_cannot_travel_is_refused_at_once():
    with pytest.raises(VerifierError, match="cannot be pickled"):
        WorkerPool({"it": _Unpicklable()}, workers=1)


def test_workers_import_no_torch_and_no_numpy():
    from tests.unit.verifiers.hostile import Imported

    with WorkerPool({"it": Imported()}, workers=1) as pool:
        verdict = pool.judge_blocking([job("torch numpy sympy")])[0]
    assert verdict.detail == "none"


def test_a_trivial_verdict_costs_well_under_a_millisecond(pool):
    jobs = [job("score 1")] * 4000
    pool.judge_blocking(jobs[:100])
    fastest = min(_seconds(pool, jobs) for _ in range(3))
    assert fastest / len(jobs) < 0.001  # about 0.1 ms on a quiet machine


def _seconds(pool, jobs):
    started = time.perf_counter()
    pool.judge_blocking(jobs)
    return time.perf_counter() - started


def test_workers_end_with_a_parent_that_is_killed(tmp_path):
    import signal
    import subprocess
    import sys

    program = tmp_path / "parent.py"
    program.write_text(
        "import sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from hostile import Obedient\n"
        "from peira.types.task import Task\n"
        "from peira.types.verdict import Attempt\n"
        "from peira.verifiers.pool import Job, WorkerPool\n"
        "pool = WorkerPool({'it': Obedient()}, workers=1, timeout_s=600)\n"
        "attempt = Attempt(text='note ' + sys.argv[1])\n"
        "pool.judge_blocking([Job(verifier='it', task=Task(id='t', prompt='?'), attempt=attempt)])\n"
        "print('ready', flush=True)\n"
        "attempt = Attempt(text='hang')\n"
        "pool.judge_blocking([Job(verifier='it', task=Task(id='t', prompt='?'), attempt=attempt)])\n"
    )
    note = tmp_path / "pid"
    parent = subprocess.Popen([sys.executable, str(program), str(note)], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    assert parent.stdout.readline() == b"ready\n"
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 10
    while is_alive(int(note.read_text())) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_alive(int(note.read_text()))
