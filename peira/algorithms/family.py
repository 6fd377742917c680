"""An algorithm is three pure functions: advantages, token loss, weights."""

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from peira.algorithms.batch import TokenLoss

AdvantageFunction = Callable[[Float[Tensor, "P G"], Bool[Tensor, "P G"]], Float[Tensor, "P G"]]
"""(rewards, judged) -> advantages; exactly 0 for unjudged members and for groups without spread."""
WeightFunction = Callable[[Bool[Tensor, "N T"]], Float[Tensor, "N T"]]
"""mask of the whole batch -> weights such that the batch loss is (weights * token_loss).sum()."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """What the loop needs to know of GRPO and its family; each part pickles and travels to remote workers."""

    advantages: AdvantageFunction
    token_loss: TokenLoss
    weights: WeightFunction
    needs_reference: bool
    """Whether `token_loss` reads `reference_logprobs`."""
    count_dead: bool
    """Whether the mask that `weights` sees has rows for the rollouts of groups without a signal."""
