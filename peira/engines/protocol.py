"""What the trainer may ask of a machine: seven verbs, whatever hardware stands behind them."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from jaxtyping import Float
from torch import Tensor

from peira.algorithms.batch import BackwardResult, TokenLoss, TrainBatch
from peira.errors import EngineError
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
            EngineError: a prompt is empty, prompt and `max_tokens` exceed the context, ids lie outside the
                vocabulary, or the learner has moved since the last `sync_weights`.
        """
        ...

    def abort(self) -> None:
        """End every running `sample` after its present token.

        What is unfinished comes out as ABORT, with the tokens it has (none, if it had not begun). To go on,
        ask again with `prefix_ids` and what is left of `max_tokens`: together they are the completion that
        nobody cut. Engines without `partial_rollouts` let their samples finish.
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


def check_requests(
    requests: Sequence[SampleRequest], *, vocabulary_size: int, context_tokens: int | None, can_decode: bool
) -> None:
    """Refuse, before any work, what no engine can sample.

    Raises:
        EngineError: names the request, what is wrong with it, and the way out.
    """
    seen: set[str] = set()
    for request in requests:
        if request.id in seen:
            raise EngineError(
                f"sample: request {request.id!r}: id given twice: expected ids that tell them apart"
            )
        seen.add(request.id)
        place, params = f"sample: request {request.id!r}", request.params
        if not request.prompt_ids:
            raise EngineError(
                f"{place}: prompt_ids = (): expected at least one token; give the prompt a start token"
            )
        if request.num_samples < 1:
            raise EngineError(
                f"{place}: num_samples = {request.num_samples}: expected 1 or more; leave it out"
            )
        if params.max_tokens < 1:
            raise EngineError(f"{place}: max_tokens = {params.max_tokens}: expected 1 or more; leave it out")
        if params.temperature < 0 or params.top_k < 0 or not 0 < params.top_p <= 1:
            raise EngineError(
                f"{place}: temperature, top_p, top_k = {params.temperature}, {params.top_p}, {params.top_k}: "
                "expected at least 0, in (0, 1], at least 0; 1, 1, 0 draw from the model as it is"
            )
        if params.stop_strings and (not can_decode or "" in params.stop_strings):
            reason = "no empty string" if can_decode else "none, since this engine has no tokenizer"
            raise EngineError(
                f"{place}: stop_strings = {params.stop_strings}: expected {reason}; leave them out"
            )
        ids = (*request.prompt_ids, *request.prefix_ids)
        if min(ids) < 0 or max(ids) >= vocabulary_size:
            wrong = next(i for i in ids if not 0 <= i < vocabulary_size)
            raise EngineError(
                f"{place}: prompt_ids contains {wrong}: expected ids in [0, {vocabulary_size}); "
                "use the tokenizer that belongs to the model"
            )
        if context_tokens is not None and len(ids) + params.max_tokens > context_tokens:
            raise EngineError(
                f"{place}: prompt and prefix of {len(ids)} tokens + max_tokens = {params.max_tokens}: "
                f"expected at most {context_tokens}, the model's context; shorten the prompt or lower "
                "max_tokens"
            )


def check_batch(batch: TrainBatch, *, verb: str, vocabulary_size: int, context_tokens: int | None) -> None:
    """Refuse a batch that trains on nothing, on a first token, or on what the model cannot read.

    Raises:
        EngineError: names the verb and what is wrong.
    """
    if batch.num_sequences == 0:
        raise EngineError(
            f"{verb}: batch = 0 sequences: expected at least one; skip the call when all groups died"
        )
    if not bool(batch.mask.any()):
        raise EngineError(f"{verb}: batch.mask = all False: expected a token to train on; skip the call")
    if bool(batch.mask[:, 0].any()):
        raise EngineError(
            f"{verb}: batch.mask[:, 0] = True: expected False, since no token precedes the first"
        )
    longest = int(batch.lengths.max())
    if context_tokens is not None and longest > context_tokens:
        raise EngineError(
            f"{verb}: batch.lengths = {longest}: expected at most {context_tokens}, the context; drop "
            "such rollouts, or lower sampling.max_tokens"
        )
    low, high = int(batch.token_ids.min()), int(batch.token_ids.max())
    if low < 0 or high >= vocabulary_size:
        raise EngineError(
            f"{verb}: batch.token_ids = {low if low < 0 else high}: expected ids in "
            f"[0, {vocabulary_size}); use the tokenizer that belongs to the model"
        )
