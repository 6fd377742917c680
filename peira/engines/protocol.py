"""What the trainer may ask of a machine: seven verbs, whatever hardware stands behind them."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from jaxtyping import Float
from torch import Tensor

from peira.algorithms.batch import BackwardResult, TokenLoss, TrainBatch
from peira.types.rollout import Completion, SampleRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What an engine can do beyond the verbs; the configuration is checked against it before a run starts."""

    sleep_levels: tuple[int, ...] = ()
    partial_rollouts: bool = False
    """Whether a stopped `sample` yields ABORT completions that `prefix_ids` can continue."""
    in_flight_update: bool = False
    """Whether `sync_weights` may run while `sample` does."""
    prefix_cache: bool = False
    lora: bool = False
    latent_steps: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncReceipt:
    """Proof that the sampler holds the learner's weights (law 3)."""

    policy_version: int
    num_tensors: int
    """Tensors the sampler now holds from the learner: all of them, or `sync_weights` raised."""
    size_bytes: int
    canary_gap: float
    """Largest absolute difference between sampler and learner log-probs on the fixed canary, in nats."""
    duration_s: float


class Engine(Protocol):
    """Holds the policy twice, as sampler and as learner.

    Only `sync_weights` carries weights from learner to sampler. Every verb is awaitable because any may
    cross a process boundary. After a verb raises, only `load` is allowed.
    """

    @property
    def capabilities(self) -> Capabilities:
        """What this engine can do beyond the verbs."""
        ...

    @property
    def policy_version(self) -> int:
        """Optimizer steps the learner has taken since the run began; survives `save` and `load`."""
        ...

    def sample(self, requests: Sequence[SampleRequest]) -> AsyncGenerator[Completion, None]:
        """Draw each request's completions; give them as they finish, in any order.

        Exactly `num_samples` completions come for each request. A completion depends on its prompt, its seed,
        its index and the weights, and on nothing else in the call (up to rounding of the matrix products).

        Raises:
            EngineError: a prompt is empty or longer than the context, or ids lie outside the vocabulary.
        """
        ...

    async def logprobs(self, batch: TrainBatch) -> Float[Tensor, "N T"]:
        """Learner log-probs of the batch's tokens without gradient, 0 where the mask is False; on the CPU."""
        ...

    async def forward_backward(self, batch: TrainBatch, loss: TokenLoss) -> BackwardResult:
        """Add the gradient of (weights * loss).sum() to what is accumulated.

        Raises:
            EngineError: the batch is empty, or its loss is not finite (nothing is accumulated then).
        """
        ...

    async def optim_step(self, *, lr: float) -> float:
        """Apply and clear the accumulated gradient at this learning rate; return its norm before clipping.

        Raises:
            EngineError: nothing was accumulated, or the norm is not finite (weights stay as they were).
        """
        ...

    async def sync_weights(self) -> SyncReceipt:
        """Make the sampler equal to the learner and prove it on a canary.

        Raises:
            SyncError: the gap exceeds the engine's limit, or a tensor was not covered.
        """
        ...

    async def save(self, path: Path) -> None:
        """Write weights and tokenizer as a `transformers` folder, optimizer and random state beside them.

        Writes into an existing empty folder; the caller makes the whole visible at once.
        """
        ...

    async def load(self, path: Path) -> None:
        """Restore a `save`; the next step equals the step that followed it."""
        ...

    async def close(self) -> None:
        """Release memory and processes; idempotent."""
        ...
