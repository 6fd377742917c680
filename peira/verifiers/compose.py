"""Verifiers made of verifiers. Each is a verifier itself, so they nest.

What a member could not judge stays unjudged in the whole, unless the others decide alone. Channels side by
side, with weights, need none of this: that is what a run's list of verifiers is.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from peira.errors import ConfigError
from peira.types.rollout import StopReason
from peira.types.task import Task
from peira.types.verdict import Attempt, Verdict, VerdictStatus
from peira.verifiers.protocol import Verifier


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A verifier within another, with the name its score has in `parts`."""

    name: str
    verifier: Verifier
    weight: float = 1.0


def prepare_all(verifiers: Sequence[Verifier]) -> None:
    """Load what each of them wants loaded before the clock runs."""
    for verifier in verifiers:
        prepare = getattr(verifier, "prepare", None)
        if prepare is not None:
            prepare()


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedSum:
    """sum of weight * score / sum of weights."""

    members: tuple[Member, ...]

    def __post_init__(self) -> None:
        _require_members(self.members, "weighted_sum")
        if any(member.weight < 0 for member in self.members) or not sum(m.weight for m in self.members) > 0:
            weights = [member.weight for member in self.members]
            raise ConfigError(
                f"verifiers: weighted_sum: weights = {weights}: expected numbers >= 0, not all 0"
            )

    def prepare(self) -> None:
        """Prepare every member."""
        prepare_all([member.verifier for member in self.members])

    def verify(self, task: Task, attempt: Attempt) -> Verdict:
        """Judge by every member of non-zero weight; unjudged when one of them is."""
        parts: dict[str, float] = {}
        total = 0.0
        verdicts = []
        for member in self.members:
            verdict = member.verifier.verify(task, attempt)
            verdicts.append(verdict)
            if verdict.score is None:
                if member.weight != 0:
                    return _unjudged(member, verdict)
                continue
            parts[member.name] = verdict.score
            total += member.weight * verdict.score
        score = min(1.0, total / sum(member.weight for member in self.members))
        return Verdict(
            score=score, parts=parts, detail=_details(self.members, verdicts), flags=_flags(verdicts)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AllOf:
    """The lowest score of all members, asked in order; a score of 0 ends the asking."""

    members: tuple[Member, ...]

    def __post_init__(self) -> None:
        _require_members(self.members, "all_of")

    def prepare(self) -> None:
        """Prepare every member."""
        prepare_all([member.verifier for member in self.members])

    def verify(self, task: Task, attempt: Attempt) -> Verdict:
        """Judge by members in order; unjudged when one of those asked is."""
        parts: dict[str, float] = {}
        verdicts = []
        for member in self.members:
            verdict = member.verifier.verify(task, attempt)
            if verdict.score is None:
                return _unjudged(member, verdict)
            verdicts.append(verdict)
            parts[member.name] = verdict.score
            if verdict.score == 0:
                break
        return Verdict(
            score=min(parts.values()),
            parts=parts,
            detail=_details(self.members, verdicts),
            flags=_flags(verdicts),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstThatApplies:
    """The verdict of the first member that does not abstain. One that breaks does not count as abstaining."""

    members: tuple[Member, ...]

    def __post_init__(self) -> None:
        _require_members(self.members, "first_that_applies")

    def prepare(self) -> None:
        """Prepare every member."""
        prepare_all([member.verifier for member in self.members])

    def verify(self, task: Task, attempt: Attempt) -> Verdict:
        """Ask members in order; ABSTAIN when all abstain."""
        for member in self.members:
            verdict = member.verifier.verify(task, attempt)
            if verdict.status is not VerdictStatus.ABSTAIN:
                return replace(verdict, detail=f"{member.name}: {verdict.detail}")
        return Verdict.broken(VerdictStatus.ABSTAIN, f"all {len(self.members)} members abstained")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gated:
    """The score of one verifier where another, the gate, gives at least `threshold`; 0 where it does not."""

    gate: Verifier
    verifier: Verifier
    threshold: float = 1.0

    def prepare(self) -> None:
        """Prepare both."""
        prepare_all([self.gate, self.verifier])

    def verify(self, task: Task, attempt: Attempt) -> Verdict:
        """Judge by the gate, then by the verifier when it is open."""
        gate = self.gate.verify(task, attempt)
        if gate.score is None:
            return gate
        if gate.score < self.threshold:
            return Verdict(
                score=0.0,
                status=gate.status,
                detail=f"gate closed: {gate.detail}",
                parts={"gate": gate.score},
            )
        verdict = self.verifier.verify(task, attempt)
        return replace(verdict, parts={**verdict.parts, "gate": gate.score})


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthShaped:
    """A score times a factor that falls from 1 at `free` to `floor` at `limit`, in a straight line.

    Length is that of the last completion. Only what was earned shrinks: a wrong answer stays at 0, however
    short.
    """

    verifier: Verifier
    free: int
    limit: int
    floor: float = 0.0
    unit: Literal["tokens", "characters", "words"] = "tokens"

    def __post_init__(self) -> None:
        if not 0 <= self.free < self.limit:
            raise ConfigError(
                f"verifiers: length_shaped: free = {self.free}, limit = {self.limit}: "
                "expected 0 <= free < limit"
            )

    def prepare(self) -> None:
        """Prepare the verifier."""
        prepare_all([self.verifier])

    def verify(self, task: Task, attempt: Attempt) -> Verdict:
        """Judge, then scale."""
        verdict = self.verifier.verify(task, attempt)
        if verdict.score is None:
            return verdict
        length = {
            "tokens": lambda: len(attempt.token_ids),
            "characters": lambda: len(attempt.text),
            "words": lambda: len(attempt.text.split()),
        }[self.unit]()
        share = min(1.0, max(0.0, (length - self.free) / (self.limit - self.free)))
        factor = 1.0 - share * (1.0 - self.floor)
        parts = {**verdict.parts, "unshaped": verdict.score, "length": float(length)}
        return replace(verdict, score=verdict.score * factor, parts=parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class PerTurn:
    """Judges every completion of a conversation by itself: a score per turn, and one for the whole."""

    verifier: Verifier
    reduce: Literal["mean", "min", "last", "product"] = "last"

    def prepare(self) -> None:
        """Prepare the verifier."""
        prepare_all([self.verifier])

    def verify(self, task: Task, attempt: Attempt) -> Verdict:
        """Judge each turn; unjudged when one turn is."""
        texts = [message.content for message in attempt.messages if message.role == "assistant"]
        if not texts:
            texts = [attempt.text]
        scores: list[float] = []
        last = Verdict(score=0.0)
        for index, text in enumerate(texts):
            end = attempt.stop_reason if index == len(texts) - 1 else StopReason.END
            last = self.verifier.verify(task, replace(attempt, text=text, stop_reason=end))
            if last.score is None:
                return replace(last, detail=f"turn {index}: {last.detail}")
            scores.append(last.score)
        return replace(last, score=reduced(scores, self.reduce), step_scores=tuple(scores))


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """The score of a verifier that gives step scores, made of these."""

    verifier: Verifier
    reduce: Literal["mean", "min", "last", "product"] = "min"

    def prepare(self) -> None:
        """Prepare the verifier."""
        prepare_all([self.verifier])

    def verify(self, task: Task, attempt: Attempt) -> Verdict:
        """Judge, then reduce; a verdict without step scores passes as it is."""
        verdict = self.verifier.verify(task, attempt)
        if verdict.score is None or not verdict.step_scores:
            return verdict
        parts = {**verdict.parts, "outcome": verdict.score}
        return replace(verdict, score=reduced(verdict.step_scores, self.reduce), parts=parts)


def reduced(scores: Sequence[float], how: Literal["mean", "min", "last", "product"]) -> float:
    """One number of several.

    Example:
        >>> [reduced((0.5, 1.0), how) for how in ("mean", "min", "last", "product")]
        [0.75, 0.5, 1.0, 0.5]
    """
    match how:
        case "mean":
            return math.fsum(scores) / len(scores)
        case "min":
            return min(scores)
        case "last":
            return scores[-1]
        case "product":
            return math.prod(scores)


def _require_members(members: Sequence[Member], kind: str) -> None:
    names = [member.name for member in members]
    if not names or len(set(names)) != len(names):
        raise ConfigError(
            f"verifiers: {kind}: members = {names}: expected at least one, each with its own name"
        )


def _unjudged(member: Member, verdict: Verdict) -> Verdict:
    return Verdict.broken(verdict.status, f"{member.name}: {verdict.detail}")


def _details(members: Sequence[Member], verdicts: Sequence[Verdict]) -> str:
    return "; ".join(
        f"{member.name}: {verdict.detail}"
        for member, verdict in zip(members, verdicts, strict=False)
        if verdict.detail
    )


def _flags(verdicts: Sequence[Verdict]) -> tuple[str, ...]:
    return tuple(flag for verdict in verdicts for flag in verdict.flags)
