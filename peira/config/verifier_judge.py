"""Settings of verifiers that ask a language model."""

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from peira.config.channel import ChannelConfig
from peira.config.section import KIND, Section


class HttpClientConfig(Section):
    """A model behind an OpenAI-compatible endpoint."""

    kind: Literal["http"] = "http"
    base_url: str
    """Up to and with the version: `http://127.0.0.1:8000/v1`."""
    model: str
    """Its name at the endpoint."""
    api_key_variable: str = ""
    """Environment variable that holds the key; empty sends none."""
    timeout_s: float = Field(default=30.0, gt=0)
    """Wall-clock seconds for one request."""
    total_s: float = Field(default=60.0, gt=0)
    """For one reply with all its retries."""
    attempts: int = Field(default=4, ge=1)
    """How often a request is sent that meets a connection error, a time-out, 429 or 5xx."""
    structured: bool = True
    """Send the JSON schema of the reply along; switch off for endpoints that refuse it."""
    extra: dict[str, Any] = Field(default_factory=dict)
    """Further fields of the request's body."""


class LocalClientConfig(Section):
    """A model loaded in the worker itself."""

    shorthand: ClassVar[str | None] = "model"

    kind: Literal["local"] = "local"
    model: str
    """A folder, a hub id, or a name that `peira models` lists."""
    device: str = "cpu"
    """Where it runs. Every worker loads a copy of its own."""


ChatClientConfig = Annotated[HttpClientConfig | LocalClientConfig, *KIND]


class JudgeConfig(ChannelConfig):
    """A language model that says whether an answer is right, or how good it is."""

    kind: Literal["judge"] = "judge"
    timeout_s: float | None = Field(default=120.0, gt=0)
    """Wall-clock seconds for one attempt, in place of `judging.timeout_s`."""
    client: ChatClientConfig
    """Which model."""
    cache: Path | None = None
    """A folder of replies: the same question is not asked twice, not even by another run."""
    form: Literal["binary", "scale", "pair"] = "binary"
    """binary: pass or not; scale: 0 to `scale_max`; pair: against the task's answer, in both orders."""
    scale_max: int = Field(default=10, ge=1, le=100)
    """Best mark on the scale."""
    instructions: str = ""
    """What to judge by, in the words that the model is shown; empty takes the form's own."""
    show_reference: bool = True
    """Show the task's answer as the reference."""
    samples: int = Field(default=1, ge=1, le=32)
    """Independent readings; the score is their mean. More than one needs a temperature above 0."""
    temperature: float = Field(default=0.0, ge=0)
    """Of the judge's sampling."""
    attempts: int = Field(default=2, ge=1)
    """How often a reading is asked for until its reply is readable."""
    max_tokens: int = Field(default=512, ge=16)
    """Ceiling on the judge's reply."""

    @model_validator(mode="after")
    def _outages_are_reported_in_time(self) -> "JudgeConfig":
        _refuse_late_outages(self.client, self.timeout_s)
        return self


class RubricConfig(ChannelConfig):
    """A rubric per task: facts extracted by a model and checked by rule, other criteria judged by a model."""

    kind: Literal["rubric"] = "rubric"
    timeout_s: float | None = Field(default=120.0, gt=0)
    """Wall-clock seconds for one attempt, in place of `judging.timeout_s`."""
    client: ChatClientConfig
    """Which model extracts and judges. It never sees the truth."""
    cache: Path | None = None
    """A folder of replies: the same question is not asked twice, not even by another run."""
    aggregate: Literal["essential_first", "gated", "halved"] = "essential_first"
    """essential_first: additional criteria count only when all essential ones are met; gated: in proportion
    to them; halved: e (0.5 + 0.5 a)."""
    kappa: float = Field(default=0.3, ge=0, lt=1)
    """Share of the reward that additional criteria can add."""
    unreadable: Literal["zero", "abstain"] = "zero"
    """What becomes of a criterion whose reply stays unreadable: 0 and a flag, or the answer is unjudged."""
    max_tokens: int = Field(default=1024, ge=16)
    """Ceiling on one reply."""

    @model_validator(mode="after")
    def _outages_are_reported_in_time(self) -> "RubricConfig":
        _refuse_late_outages(self.client, self.timeout_s)
        return self


def _refuse_late_outages(client: HttpClientConfig | LocalClientConfig, timeout_s: float | None) -> None:
    if isinstance(client, HttpClientConfig) and timeout_s is not None and client.total_s >= timeout_s:
        raise ValueError(
            f"client.total_s = {client.total_s}: expected less than timeout_s = {timeout_s}, "
            "or the worker is killed before it can report an outage; raise timeout_s"
        )
