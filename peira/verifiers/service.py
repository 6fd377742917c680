"""Verifiers as an HTTP service: batches in, verdicts out, and a queue that says when it is full.

    POST /verify   see `wire.py`; 503 with Retry-After when the queue is full, 422 for another shape
    GET  /health   {"status": "ok", "queued": 0, "workers": 2, "restarts": 0, "channels": [...]}
    GET  /metrics  Prometheus text: verdicts by channel and status, seconds, queue, restarts

Needs the `serve` extra. The service trusts its callers: bind it to a private address.
"""

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from peira.errors import ConfigError, DataError
from peira.verifiers.channels import VerifierSet
from peira.verifiers.wire import attempt_from_json, task_from_json, verdict_to_json

if TYPE_CHECKING:
    from fastapi import FastAPI

MAX_BODY_BYTES = 32 * 1024 * 1024
MAX_ITEMS = 4096
"""Largest request."""


def service(verifiers: VerifierSet, *, max_queued: int = 10_000) -> "FastAPI":
    """The application around a set of verifiers; whoever made the set closes it.

    Raises:
        ConfigError: the `serve` extra is not installed.
    """
    try:
        from fastapi import FastAPI, Request, Response
        from fastapi.responses import JSONResponse, PlainTextResponse
    except ImportError as error:
        raise ConfigError("verify: --serve: fastapi is not installed; pip install 'peira[serve]'") from error

    app = FastAPI(title="peira verify", openapi_url=None)
    tally = _Tally()

    async def verify(request: Request) -> Response:
        body = await request.body()
        if len(body) > MAX_BODY_BYTES:
            return JSONResponse({"error": f"expected at most {MAX_BODY_BYTES} bytes"}, 413)
        try:
            attempts = _attempts(await request.json())
            num_jobs = sum(len(verifiers.applying(task)) for task, _ in attempts)
        except (ValueError, TypeError, AttributeError, DataError) as error:
            return JSONResponse({"error": str(error)[:500]}, 422)
        if verifiers.pool.queued + num_jobs > max_queued and verifiers.pool.queued > 0:
            tally.refused += 1
            return JSONResponse({"error": "the queue is full"}, 503, headers={"Retry-After": "1"})
        started = time.monotonic()
        table = await verifiers.judge(attempts)
        tally.note(table, time.monotonic() - started)
        rows = [{name: verdict_to_json(verdict) for name, verdict in row.items()} for row in table]
        return JSONResponse({"verdicts": rows})

    async def health() -> dict[str, Any]:
        return {
            "status": "ok",
            "queued": verifiers.pool.queued,
            "workers": verifiers.pool.workers,
            "restarts": verifiers.pool.restarts,
            "channels": [channel.name for channel in verifiers.channels],
        }

    async def metrics() -> Response:
        return PlainTextResponse(tally.text(verifiers), media_type="text/plain; version=0.0.4")

    app.router.add_route("/verify", verify, methods=["POST"])
    app.add_api_route("/health", health, methods=["GET"])
    app.add_api_route("/metrics", metrics, methods=["GET"], response_model=None)
    return app


def _attempts(body: Any) -> list[Any]:
    items = body["items"] if isinstance(body, dict) and "items" in body else None
    if not isinstance(items, list):
        raise ValueError('expected {"items": [{"task": {...}, "attempt": {...}}]}')
    if len(items) > MAX_ITEMS:
        raise ValueError(f"{len(items)} items: expected at most {MAX_ITEMS}")
    pairs = []
    for index, item in enumerate(items):
        try:
            pairs.append((task_from_json(item["task"]), attempt_from_json(item["attempt"])))
        except KeyError as error:
            raise ValueError(f"item {index}: expected {error} in it") from error
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError(f"item {index}: {error}") from error
    return pairs


class _Tally:
    """What was judged since the start."""

    def __init__(self) -> None:
        self.verdicts: Counter[tuple[str, str]] = Counter()
        self.requests = 0
        self.refused = 0
        self.seconds = 0.0

    def note(self, table: list[dict[str, Any]], seconds: float) -> None:
        self.requests += 1
        self.seconds += seconds
        for row in table:
            self.verdicts.update((name, verdict.status.value) for name, verdict in row.items())

    def text(self, verifiers: VerifierSet) -> str:
        lines = ["# TYPE peira_verdicts_total counter"]
        for (channel, status), count in sorted(self.verdicts.items()):
            lines.append(f'peira_verdicts_total{{channel="{channel}",status="{status}"}} {count}')
        for name, kind, value in (
            ("requests_total", "counter", self.requests),
            ("refused_total", "counter", self.refused),
            ("judging_seconds_total", "counter", self.seconds),
            ("worker_restarts_total", "counter", verifiers.pool.restarts),
            ("queued", "gauge", verifiers.pool.queued),
        ):
            lines += [f"# TYPE peira_{name} {kind}", f"peira_{name} {value}"]
        return "\n".join(lines) + "\n"
