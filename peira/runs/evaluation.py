"""What an evaluation leaves behind: estimates with intervals, and the questions they rest on."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from peira.errors import RunError
from peira.runs.jsonl import number


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A number measured over questions, with the interval that goes with it."""

    value: float
    low: float
    high: float
    num_questions: int
    """Questions it rests on; the interval is over them, not over completions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalRecord:
    """One evaluation of the policy on held-out questions."""

    step: int
    """Training steps taken before it: 0 is before training."""
    policy_version: int
    headline: str
    """Which of `estimates` the verdict in the report speaks of."""
    estimates: Mapping[str, Estimate]
    """By name: accuracy, pass_at_1, pass_at_4, ..."""
    by_source: Mapping[str, Estimate] = field(default_factory=dict)
    """The headline for each data source."""
    confidence: float = 0.95
    """Of the intervals."""
    num_questions: int
    num_completions: int
    num_unjudged: int = 0
    """Completions without a verdict; they are in no estimate."""
    duration_s: float = 0.0
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Sampling, data and verifier, as they were."""
    observations: Mapping[str, float] = field(default_factory=dict)
    """By metric name: what was seen beside the estimates (worthless attempts accepted, the hacking gap).
    They have no say in which checkpoint is best."""
    notes: tuple[str, ...] = ()
    """What a person should read: one line each."""

    def __post_init__(self) -> None:
        if self.headline not in self.estimates:
            raise RunError(
                f"evaluation: headline = {self.headline!r}: expected one of {sorted(self.estimates)}"
            )

    @property
    def headline_estimate(self) -> Estimate:
        """The estimate that the report puts first."""
        return self.estimates[self.headline]

    def to_json(self) -> dict[str, Any]:
        """The content of `evals/step-N.json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "EvalRecord":
        """The record that `to_json` wrote.

        Raises:
            RunError: the record has another shape.
        """
        try:
            values = dict(record)
            for key in ("estimates", "by_source"):
                values[key] = {name: _estimate(item) for name, item in record.get(key, {}).items()}
            values["notes"] = tuple(record.get("notes", ()))
            return cls(**values)
        except (KeyError, TypeError, ValueError) as error:
            raise RunError(
                f"evaluation: expected the shape that EvalRecord.to_json gives: {error}"
            ) from error


def _estimate(item: Mapping[str, Any]) -> Estimate:
    return Estimate(
        value=number(item["value"]),
        low=number(item["low"]),
        high=number(item["high"]),
        num_questions=item["num_questions"],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalCompletion:
    """One completion of a question."""

    text: str
    scores: Mapping[str, float | None]
    """By verifier; None where it did not judge."""
    status: Mapping[str, str]
    """By verifier: the verdict's status."""
    detail: Mapping[str, str] = field(default_factory=dict)
    right: bool | None
    """Whether it counts as right in the headline; None when it was not judged."""
    num_tokens: int
    stop_reason: str
    sampled: bool = False
    """Drawn at a temperature (for pass@k) rather than greedily."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalQuestion:
    """One question and what the policy made of it."""

    task_id: str
    source: str
    prompt: Any
    """As in `Task`: a string, or messages."""
    answer: Any
    completions: tuple[EvalCompletion, ...]

    def to_json(self) -> dict[str, Any]:
        """The line of `evals/step-N.questions.jsonl`."""
        return asdict(self)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "EvalQuestion":
        """The question that `to_json` wrote; the prompt stays in its JSON form.

        Raises:
            RunError: the record has another shape.
        """
        try:
            values = dict(record)
            values["completions"] = tuple(EvalCompletion(**item) for item in record["completions"])
            return cls(**values)
        except (KeyError, TypeError) as error:
            raise RunError(
                f"evaluation: expected the shape that EvalQuestion.to_json gives: {error}"
            ) from error
