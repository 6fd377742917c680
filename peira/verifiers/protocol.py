"""What a verifier is."""

from typing import Protocol, runtime_checkable

from peira.types.task import Task
from peira.types.verdict import Attempt, Verdict


@runtime_checkable
class Verifier(Protocol):
    """Judges one attempt at one task.

    Synchronous, stateless between calls and picklable: it runs in worker processes that are killed when they
    take too long. It returns a `Verdict` for whatever the policy wrote, and raises `VerifierError` when it
    cannot do its own work (no reference answer, a missing program): that rollout is then unjudged, not wrong.
    """

    def verify(self, task: Task, attempt: Attempt) -> Verdict:
        """Judge one attempt."""
        ...
