"""An algorithm is three pure functions: advantages, token loss, weights."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from jaxtyping import Bool, Float
from torch import Tensor

from peira.algorithms.batch import TokenLoss

AdvantageFunction = Callable[[Float[Tensor, "P G"], Bool[Tensor, "P G"]], Float[Tensor, "P G"]]
"""(rewards, judged) -> advantages; exactly 0 for unjudged members and for groups without spread."""


class WeightFunction(Protocol):
    """Mask of the whole batch -> weights such that the batch loss is (weights * token_loss).sum()."""

    def __call__(
        self, mask: Bool[Tensor, "N T"], *, dead_sequences: int = 0, dead_tokens: int = 0
    ) -> Float[Tensor, "N T"]:
        """Say how many rollouts, and tokens in them, were left out of the mask for want of a signal.

        Whether they count in the averages is the algorithm's convention (`algorithm.count_dead`).
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """What the loop needs to know of GRPO and its family; each part pickles and travels to remote workers."""

    advantages: AdvantageFunction
    token_loss: TokenLoss
    weights: WeightFunction
    needs_reference: bool
    """Whether `token_loss` reads `reference_logprobs`."""
