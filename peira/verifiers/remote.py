"""A verifier on another machine, behind HTTP."""

import time
from dataclasses import dataclass
from typing import Any

from peira.errors import ConfigError, VerifierError
from peira.types.task import Task
from peira.types.verdict import Attempt, Verdict
from peira.verifiers.wire import attempt_to_json, task_to_json, verdict_from_json

BUSY = {429, 502, 503, 504}


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteVerifier:
    """Asks a service (`peira verify --serve`, or anything that speaks `wire.py`) for each verdict.

    A busy or absent service is asked again, less and less often, until `patience_s` has passed; then the
    attempt is unjudged. A reply of the wrong shape is an error at once. The reference answer travels with the
    attempt. Needs the `serve` extra.
    """

    url: str
    """Of the service; `/verify` is added."""
    channel: str | None = None
    """Which of the service's channels; None where it has one."""
    patience_s: float = 8.0
    """Keep it below the limit for one attempt, or the worker is killed first."""

    def prepare(self) -> None:
        """Load the HTTP library before the clock runs."""
        try:
            import httpx  # noqa: F401
        except ImportError as error:
            raise ConfigError(
                "verifiers: remote: httpx is not installed; pip install 'peira[serve]'"
            ) from error

    def verify(self, task: Task, attempt: Attempt) -> Verdict:
        """Judge one attempt.

        Raises:
            VerifierError: no reply in time, a refusal, or a reply of another shape.
        """
        item = {"task": task_to_json(task), "attempt": attempt_to_json(attempt)}
        reply = self._reply({"items": [item]})
        try:
            channels = reply["verdicts"][0]
            names = list(channels)
            if self.channel is None and len(names) != 1:
                raise VerifierError(f"{self.url}: channel: expected one of {', '.join(names)}")
            return verdict_from_json(channels[self.channel or names[0]])
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise VerifierError(f"{self.url}: expected verdicts by channel, found {reply!r:.120}") from error

    def _reply(self, body: dict[str, Any]) -> Any:
        import httpx

        deadline = time.monotonic() + self.patience_s
        wait_s = 0.05
        while True:
            left = max(0.05, deadline - time.monotonic())
            try:
                response = httpx.post(f"{self.url.rstrip('/')}/verify", json=body, timeout=left)
            except httpx.TransportError as error:
                problem = f"{type(error).__name__}: {error}"
            else:
                if response.status_code == 200:
                    return response.json()
                problem = f"status {response.status_code}: {response.text[:200]}"
                if response.status_code not in BUSY:
                    raise VerifierError(f"{self.url}: {problem}")
            if time.monotonic() + wait_s >= deadline:
                raise VerifierError(f"{self.url}: no verdict within {self.patience_s:g} s ({problem})")
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, 1.0)
