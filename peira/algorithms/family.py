"""An algorithm is a few pure functions: advantages, preparation of the batch, token loss, weights.

rewards, judged, context --advantages--> [P, G]      once per step, on all groups drawn
TrainBatch --prepare--> TrainBatch                   once old and reference log-probs are filled
mask --weights--> [N, T]                             once per optimizer step, before the batch is cut
logprobs, micro-batch --token_loss--> [N, T]         inside the engine, wherever that runs
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, runtime_checkable

from jaxtyping import Bool, Float, Int
from torch import Tensor

from peira.algorithms.batch import TokenLoss, TrainBatch
from peira.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class StepContext:
    """What some advantages read beside the rewards. Give what is known; asking for more raises."""

    outcomes: Float[Tensor, "P G"] | None = None
    """The verifier's own score in [0, 1], before weighting and shaping: collapse is decided on it."""
    channels: Float[Tensor, "P G K"] | None = None
    """Scores by reward channel, not summed; NaN where a channel was not judged."""
    num_tokens: Int[Tensor, "P G"] | None = None
    """Generated tokens of each rollout."""
    false_positive_rates: Float[Tensor, "P G"] | None = None
    """Chance that the verifier accepts a wrong answer, by the rollout's source."""
    false_negative_rates: Float[Tensor, "P G"] | None = None
    state: Mapping[str, float] = field(default_factory=dict)
    """What the algorithm remembers between steps: the last `observe`'s result, from a checkpoint or empty."""

    def need(self, name: str, why: str) -> Tensor:
        """The named tensor, or an error that says which algorithm asked for it."""
        value = getattr(self, name)
        if value is None:
            raise ConfigError(f"algorithm: {why} needs `{name}` of every rollout; this run does not have it")
        assert isinstance(value, Tensor)
        return value


@runtime_checkable
class AdvantageFunction(Protocol):
    """(rewards, judged) -> advantages; exactly 0 for unjudged members.

    Groups without spread get 0 too, unless the algorithm repairs them.
    """

    def __call__(
        self,
        rewards: Float[Tensor, "P G"],
        judged: Bool[Tensor, "P G"],
        *,
        context: StepContext | None = None,
    ) -> Float[Tensor, "P G"]:
        """Advantages of the whole step's groups."""
        ...


@runtime_checkable
class ObserveFunction(Protocol):
    """What the algorithm remembers: (rewards, judged, context with the old state) -> new state."""

    def __call__(
        self, rewards: Float[Tensor, "P G"], judged: Bool[Tensor, "P G"], *, context: StepContext
    ) -> dict[str, float]:
        """Called once per step, before `advantages`; the result is kept in checkpoints."""
        ...


@runtime_checkable
class WeightFunction(Protocol):
    """Mask of the whole batch -> weights such that the batch loss is (weights * token_loss).sum()."""

    def __call__(
        self, mask: Bool[Tensor, "N T"], *, dead_sequences: int = 0, dead_tokens: int = 0
    ) -> Float[Tensor, "N T"]:
        """Say how many rollouts, and tokens in them, were left out of the mask for want of a signal.

        Whether they count in the averages is the algorithm's convention (`algorithm.count_dead`).
        """
        ...


@runtime_checkable
class CreditFunction(Protocol):
    """Scores of reasoning steps -> what they add to the advantages of tokens."""

    def __call__(
        self,
        step_rewards: Float[Tensor, "N S"],
        step_mask: Bool[Tensor, "N S"],
        step_ends: Int[Tensor, "N S"],
        group: Int[Tensor, "N"],
        mask: Bool[Tensor, "N T"],
    ) -> Float[Tensor, "N T"]:
        """Over all rollouts of a step at once; columns are tokens of the completions."""
        ...


Preparation = Callable[[TrainBatch], TrainBatch]
"""One change of the batch; reads old and reference log-probs, leaves the given batch alone."""


def prepared(batch: TrainBatch, *, steps: tuple[Preparation, ...]) -> TrainBatch:
    """The batch after these steps, in order."""
    for step in steps:
        batch = step(batch)
    return batch


NOTHING_TO_PREPARE: Preparation = partial(prepared, steps=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """What the loop needs to know of GRPO and its family; each part pickles and travels to remote workers."""

    advantages: AdvantageFunction
    token_loss: TokenLoss
    weights: WeightFunction
    needs_reference: bool
    """Whether `token_loss` or `prepare` reads `reference_logprobs`."""
    needs_old_logprobs: bool = False
    """Whether `old_logprobs` must be the learner's even when the batch is used for one update only."""
    credit: CreditFunction | None = None
    """Present when scores of steps are trained on."""
    anchor_loss: TokenLoss | None = None
    """Loss of anchor rows, taken beside `token_loss` in every update; None where there are none."""
    prepare: Preparation = NOTHING_TO_PREPARE
    """Fills what depends on old and reference log-probs: mismatch weights, penalties inside the reward."""
    uncorrected: AdvantageFunction | None = None
    """`advantages` without its noise correction, to audit what that changes; None where there is none."""
    observe: ObserveFunction | None = None
    """Present when the algorithm remembers something between steps; see `StepContext.state`."""
