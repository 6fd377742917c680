"""Tasks of reasoning-gym, judged by the scorers that come with them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from peira.errors import VerifierError
from peira.types.task import Task
from peira.types.verdict import Attempt, Verdict
from peira.verifiers.answer import answer_tag, last_box, shorten, strip_thinking, unread


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningGymVerifier:
    """Asks the family that made a task what an answer to it is worth.

    The family and what its scorer needs are read from `task.info["metadata"]`, as reasoning-gym made it. Many
    families give partial credit, some of them for the bare attempt; `partial` says whether that is kept.
    """

    extract: Literal["auto", "tag", "boxed", "whole"] = "auto"
    """tag: the last `<answer>` element; boxed: the last \\boxed{}; whole: everything after the thinking part;
    auto: the first of these three that is there."""
    partial: bool = True
    """False: anything below the full score is worth 0."""

    def prepare(self) -> None:
        """Load reasoning-gym before the clock runs."""
        import reasoning_gym  # noqa: F401

    def verify(self, task: Task, attempt: Attempt) -> Verdict:
        """Judge one attempt.

        Raises:
            VerifierError: the task does not say which family made it, or its scorer broke.
        """
        metadata = task.info.get("metadata")
        family = metadata.get("source_dataset") if isinstance(metadata, Mapping) else None
        if not isinstance(family, str):
            raise VerifierError(
                f"task {task.id!r}: info.metadata.source_dataset: expected a reasoning-gym family; "
                "load such tasks with `data.path: reasoning_gym:NAME`"
            )
        final = strip_thinking(attempt.text)
        said = None if final is None else self._said(final)
        if not said:
            return unread(attempt, "no answer")
        entry = {
            "question": task.info.get("question") or _question(task),
            "answer": task.answer,
            "metadata": metadata,
        }
        try:
            score = float(_scorer(family)(said, entry))
        except VerifierError:
            raise
        except Exception as error:
            raise VerifierError(
                f"task {task.id!r}: the scorer of {family!r} broke on {shorten(said)!r}: {error!r}"
            ) from error
        if not self.partial:
            score = float(score >= 1.0)
        return Verdict(score=score, detail=f"read {shorten(said)!r}, expected {shorten(str(task.answer))!r}")

    def _said(self, text: str) -> str | None:
        match self.extract:
            case "tag":
                return answer_tag(text)
            case "boxed":
                return last_box(text)
            case "whole":
                return text.strip()
            case "auto":
                return answer_tag(text) or last_box(text) or text.strip()


@cache
def _scorer(family: str) -> Callable[[str, dict[str, Any]], float]:
    from reasoning_gym.factory import DATASETS, get_score_answer_fn

    if family not in DATASETS:
        raise VerifierError(f"reasoning_gym: family = {family!r}: not one of the {len(DATASETS)} installed")
    scorer: Callable[[str, dict[str, Any]], float] = get_score_answer_fn(family)
    return scorer


def _question(task: Task) -> str:
    return task.prompt if isinstance(task.prompt, str) else task.prompt[-1].content
