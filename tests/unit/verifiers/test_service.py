"""A verifier behind HTTP gives the verdicts it gives at home, and an absent one gives none."""

import socket
import threading
import time
from contextlib import contextmanager

import pytest

httpx = pytest.importorskip("httpx", reason="the serve extra is not installed")
uvicorn = pytest.importorskip("uvicorn", reason="the serve extra is not installed")
pytest.importorskip("fastapi", reason="the serve extra is not installed")

from peira.errors import VerifierError  # noqa: E402
from peira.types.rollout import StopReason  # noqa: E402
from peira.types.task import Message, Task  # noqa: E402
from peira.types.verdict import Attempt, Verdict, VerdictStatus  # noqa: E402
from peira.verifiers.channels import Channel, VerifierSet  # noqa: E402
from peira.verifiers.numeric import NumericVerifier  # noqa: E402
from peira.verifiers.remote import RemoteVerifier  # noqa: E402
from peira.verifiers.service import service  # noqa: E402
from peira.verifiers.wire import (  # noqa: E402
    attempt_from_json,
    attempt_to_json,
    task_from_json,
    task_to_json,
    verdict_from_json,
    verdict_to_json,
)
from tests.unit.verifiers.hostile import Obedient  # noqa: E402

TASK = Task(
    id="t",
    prompt=(Message(role="user", content="37 + 58 = ?"),),
    answer="95",
    verifier="number",
    info={"level": 3, "nested": {"a": [1, 2]}},
    source="sums",
)


@contextmanager
def running(*channels, max_queued=10_000, timeout_s=5.0):
    with VerifierSet(channels, workers=1, timeout_s=timeout_s) as verifiers, socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(service(verifiers, max_queued=max_queued), log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            url = f"http://127.0.0.1:{listening.getsockname()[1]}"
            deadline = time.monotonic() + 20
            while not server.started and time.monotonic() < deadline:
                time.sleep(0.01)
            yield url
        finally:
            server.should_exit = True
            thread.join(20)


@pytest.fixture(scope="module")
def url():
    with running(
        Channel(name="number", verifier=NumericVerifier()),
        Channel(name="other", verifier=Obedient(), weight=0.0),
    ) as url:
        yield url


def test_records_survive_the_journey():
    attempt = Attempt(
        text="95",
        stop_reason=StopReason.LENGTH,
        token_ids=(1, 2),
        messages=(Message(role="assistant", content="95"),),
        state={"turns": 2},
    )
    verdict = Verdict(score=0.5, detail="d", parts={"a": 1.0}, step_scores=(0.0, 1.0), flags=("f",))
    broken = Verdict.broken(VerdictStatus.TIMEOUT, "late")
    assert task_from_json(task_to_json(TASK)) == TASK
    assert attempt_from_json(attempt_to_json(attempt)) == attempt
    assert [verdict_from_json(verdict_to_json(v)) for v in (verdict, broken)] == [verdict, broken]


@pytest.mark.parametrize("score", [2.0, True, "1", float("nan")])
def test_a_score_that_is_none_is_refused_on_arrival(score):
    with pytest.raises(ValueError, match="score"):
        verdict_from_json({"score": score})


def test_a_remote_verdict_is_the_one_given_at_home(url):
    remote = RemoteVerifier(url=url, channel="number")
    for text in ("it is 95", "it is 96", "no idea"):
        attempt = Attempt(text=text, stop_reason=StopReason.LENGTH)
        assert remote.verify(TASK, attempt) == NumericVerifier().verify(TASK, attempt)


def test_a_batch_comes_back_in_order(url):
    items = [
        {"task": {"answer": str(number), "verifier": "number"}, "attempt": {"text": str(number % 7)}}
        for number in range(100)
    ]
    verdicts = httpx.post(f"{url}/verify", json={"items": items}, timeout=30).json()["verdicts"]
    assert [row["number"]["score"] for row in verdicts] == [float(n == n % 7) for n in range(100)]


def test_what_a_service_could_not_judge_is_unjudged_here(url):
    task = Task(id="t", prompt="?", answer="Paris", verifier="number")
    assert (
        RemoteVerifier(url=url, channel="number").verify(task, Attempt(text="5")).status
        is VerdictStatus.ERROR
    )


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ([], "expected"),
        ({"items": [{"task": {}}]}, "item 0: expected 'attempt'"),
        ({"items": [{"task": {}, "attempt": {"text": 5}}]}, "attempt.text: expected a text"),
        ({"items": [{"task": {"verifier": "numbre"}, "attempt": {"text": "5"}}]}, "did you mean 'number'"),
        ({"items": [{"task": {}, "attempt": {"text": "5", "stop_reason": "bored"}}]}, "bored"),
    ],
)
def test_another_shape_is_refused_with_the_reason(url, body, message):
    response = httpx.post(f"{url}/verify", json=body, timeout=10)
    assert response.status_code == 422
    assert message in response.json()["error"]


def test_health_and_metrics_say_what_happened(url):
    RemoteVerifier(url=url, channel="number").verify(TASK, Attempt(text="95"))
    health = httpx.get(f"{url}/health", timeout=10).json()
    assert (health["status"], health["channels"]) == ("ok", ["number", "other"])
    text = httpx.get(f"{url}/metrics", timeout=10).text
    assert 'peira_verdicts_total{channel="number",status="scored"}' in text
    assert "peira_queued 0" in text


def test_several_channels_need_a_choice(url):
    task = Task(id="t", prompt="?", answer="5")
    with pytest.raises(VerifierError, match="channel: expected one of number, other"):
        RemoteVerifier(url=url).verify(task, Attempt(text="score 1"))


def test_a_full_queue_says_so_and_patience_gets_through():
    with running(Channel(name="it", verifier=Obedient()), max_queued=2) as url:
        slow = {"items": [{"task": {}, "attempt": {"text": "sleep 0.3"}}] * 4}
        waiting = [
            threading.Thread(target=httpx.post, args=(f"{url}/verify",), kwargs={"json": slow, "timeout": 30})
            for _ in range(1)
        ]
        for thread in waiting:
            thread.start()
        time.sleep(0.2)
        refused = httpx.post(f"{url}/verify", json=slow, timeout=10)
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
        verdict = RemoteVerifier(url=url, patience_s=20).verify(
            Task(id="t", prompt="?"), Attempt(text="score 0.5")
        )
        assert verdict.score == 0.5
        for thread in waiting:
            thread.join()


def test_an_absent_service_is_an_error_after_its_patience():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = time.monotonic()
    with pytest.raises(VerifierError, match=r"no verdict within 0.5 s"):
        RemoteVerifier(url=f"http://127.0.0.1:{port}", patience_s=0.5).verify(TASK, Attempt(text="95"))
    assert time.monotonic() - started < 10
