"""Settings of an algorithm in, three pure functions out."""

from functools import partial

from peira.algorithms.advantage import group_advantages
from peira.algorithms.family import Algorithm
from peira.algorithms.kl import kl_loss
from peira.algorithms.objective import token_objective
from peira.algorithms.policy_loss import clipped_surrogate, token_weights
from peira.config.algorithm import AlgorithmConfig


def build_algorithm(config: AlgorithmConfig, *, max_tokens: int) -> Algorithm:
    """The functions a resolved configuration names, with their numbers bound; the result pickles.

    Args:
        max_tokens: ceiling on generated tokens, `sampling.max_tokens`; the divisor of average = "constant".
    """
    policy_loss = partial(
        clipped_surrogate,
        clip_low=config.clip_low,
        clip_high=config.clip_high,
        dual_clip=config.dual_clip,
    )
    penalised = config.kl.coefficient > 0
    return Algorithm(
        advantages=partial(
            group_advantages, baseline=config.baseline, scale=config.scale, eps=config.std_eps
        ),
        token_loss=partial(
            token_objective,
            policy_loss=policy_loss,
            penalties=(partial(kl_loss, coefficient=config.kl.coefficient, estimator=config.kl.estimator),)
            if penalised
            else (),
        ),
        weights=partial(
            token_weights, average=config.average, max_tokens=max_tokens, count_dead=config.count_dead
        ),
        needs_reference=penalised,
    )
