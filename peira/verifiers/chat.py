"""Asking a language model: what a client is, any OpenAI-compatible endpoint as one, and a cache on disk.

    JudgeVerifier, RubricVerifier --> ChatClient --+-- HttpChat     an endpoint, with retries
                                                   +-- CachedChat   a folder in front of another client
                                                   `-- anything with `complete`: a local model, a test

An outage is typed: `Outage` is an infrastructure error, and never a low score.
"""

import atexit
import hashlib
import json
import os
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from peira.errors import VerifierError
from peira.types.task import Message

if TYPE_CHECKING:
    import httpx


class Outage(VerifierError):
    """The model could not be asked, or did not answer in time. Whatever was to be judged is unjudged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """One question to a model; equal requests may be answered from a cache."""

    messages: tuple[Message, ...]
    schema: Mapping[str, Any] | None = None
    """JSON schema of the reply, for endpoints that can enforce one. The reply is checked here either way."""
    max_tokens: int = 512
    temperature: float = 0.0
    seed: int = 0

    def as_json(self) -> dict[str, Any]:
        """The body of an OpenAI-style chat request, without the model's name."""
        body: dict[str, Any] = {
            "messages": [{"role": message.role, "content": message.content} for message in self.messages],
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "seed": self.seed,
        }
        if self.schema is not None:
            form = {"name": "reply", "strict": True, "schema": dict(self.schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": form}
        return body


@runtime_checkable
class ChatClient(Protocol):
    """A model that answers. Picklable: verifiers run in worker processes."""

    @property
    def identity(self) -> str:
        """Which model under which settings: part of a cache's key."""
        ...

    def complete(self, request: ChatRequest) -> str:
        """The text of the model's reply.

        Raises:
            Outage: no reply could be had.
        """
        ...


_client: "httpx.Client | None" = None
_lock = threading.Lock()


def _connections() -> "httpx.Client":
    """This process's connections. A fork opens its own."""
    global _client
    try:
        import httpx
    except ImportError as error:
        raise VerifierError("judge: expected the package httpx; pip install 'peira[judge]'") from error
    with _lock:
        if _client is None:
            _client = httpx.Client()
        return _client


@atexit.register
def close_connections() -> None:
    """Close this process's connections; the next request opens new ones."""
    global _client
    with _lock:
        client, _client = _client, None
    if client is not None:
        client.close()


def _forget() -> None:
    """In a forked child: the connections and perhaps a held lock belong to the parent."""
    global _client, _lock
    _lock = threading.Lock()
    _client = None


os.register_at_fork(after_in_child=_forget)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpChat:
    """Any endpoint that speaks OpenAI's chat completions: vLLM, SGLang, llama.cpp, Ollama, hosted ones.

    Connection errors, time-outs, 408, 409, 429 and 5xx are tried again, after the pause the server asks for
    or an exponential one with jitter, within `total_s` altogether. Other answers are our mistake and raise at
    once.
    """

    base_url: str
    """Up to and with the version: `http://127.0.0.1:8000/v1`."""
    model: str
    api_key_variable: str = ""
    """Environment variable that holds the key; the key itself is in no configuration and no log."""
    timeout_s: float = 30.0
    """For one request."""
    total_s: float = 60.0
    """For one reply with all its retries."""
    attempts: int = 4
    structured: bool = True
    """Send the JSON schema along; switch off for endpoints that refuse it."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the request's body."""

    @property
    def identity(self) -> str:
        """Endpoint, model and extra fields."""
        return json.dumps([self.base_url, self.model, self.structured, dict(self.extra)], sort_keys=True)

    def complete(self, request: ChatRequest) -> str:
        """Ask the endpoint."""
        client = _connections()
        import httpx
        import tenacity

        deadline = time.monotonic() + self.total_s
        body = {"model": self.model, **request.as_json(), **self.extra}
        if not self.structured:
            body.pop("response_format", None)

        def once() -> str:
            left = max(0.01, min(self.timeout_s, deadline - time.monotonic()))
            url = self.base_url.rstrip("/") + "/chat/completions"
            response = client.post(url, json=body, headers=self._headers(), timeout=left)
            if response.status_code in (408, 409, 429) or response.status_code >= 500:
                response.raise_for_status()
            if response.status_code != 200:
                raise VerifierError(
                    f"judge: {url}: expected 200, got {response.status_code}: {response.text[:300]!r}"
                )
            return _reply_text(response.text, url)

        backoff = tenacity.wait_random_exponential(multiplier=0.25, max=10)

        def pause(state: tenacity.RetryCallState) -> float:
            error = state.outcome.exception() if state.outcome else None
            asked = (
                error.response.headers.get("retry-after", "")
                if isinstance(error, httpx.HTTPStatusError)
                else ""
            )
            return float(asked) if asked.replace(".", "", 1).isdigit() else backoff(state)

        def spent(state: tenacity.RetryCallState) -> bool:
            last = state.attempt_number >= self.attempts
            return last or time.monotonic() + state.upcoming_sleep >= deadline

        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type((httpx.TransportError, httpx.HTTPStatusError, _NoReply)),
            wait=pause,
            stop=spent,
            reraise=True,
        )
        try:
            return retrying(once)
        except (httpx.TransportError, httpx.HTTPStatusError, _NoReply) as error:
            said = f"{type(error).__name__}: {error}".splitlines()[0]
            raise Outage(
                f"judge: {self.base_url}: no reply within {self.attempts} attempts: {said}"
            ) from error

    def _headers(self) -> dict[str, str]:
        if not self.api_key_variable:
            return {}
        key = os.environ.get(self.api_key_variable)
        if not key:
            raise VerifierError(
                f"judge: api_key_variable = {self.api_key_variable!r}: expected that variable to be set"
            )
        return {"authorization": f"Bearer {key}"}


class _NoReply(Exception):
    """The endpoint answered 200 with something that is no chat completion."""


def _reply_text(body: str, url: str) -> str:
    try:
        text = json.loads(body)["choices"][0]["message"]["content"]
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        text = None
    if not isinstance(text, str):
        raise _NoReply(f"{url}: expected choices[0].message.content, got {body[:200]!r}")
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedChat:
    """Answers equal requests from a folder. Only replies are kept; an outage is asked again."""

    client: ChatClient
    folder: Path

    @property
    def identity(self) -> str:
        """That of the client behind."""
        return self.client.identity

    def complete(self, request: ChatRequest) -> str:
        """The kept reply, or a new one, which is then kept."""
        key = json.dumps([self.client.identity, request.as_json()], sort_keys=True).encode()
        name = hashlib.sha256(key).hexdigest()
        path = self.folder / name[:2] / f"{name}.json"
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))["reply"]
        except (OSError, ValueError, KeyError, TypeError):
            kept = None
        if isinstance(kept, str):
            return kept
        reply = self.client.complete(request)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent)
        with open(handle, "w", encoding="utf-8") as file:
            json.dump({"reply": reply}, file)
        os.replace(temporary, path)
        return reply


def prompt_text(prompt: str | Sequence[Message]) -> str:
    """A task's prompt as one text."""
    if isinstance(prompt, str):
        return prompt
    return "\n\n".join(f"{message.role}: {message.content}" for message in prompt)
