"""Settings of an algorithm in, pure functions out."""

from collections.abc import Mapping, Set
from difflib import get_close_matches
from functools import partial
from typing import assert_never

from peira.algorithms.advantage import (
    group_advantages,
    maximum_likelihood_advantages,
    no_advantages,
    pass_at_k_advantages,
    plain_advantages,
    sign_advantages,
)
from peira.algorithms.batch import TokenLoss
from peira.algorithms.collapse import (
    Repair,
    RewardMap,
    avspo_observe,
    avspo_repair,
    sign_repair,
    staged_advantages,
    whitened,
)
from peira.algorithms.combine import channel_advantages
from peira.algorithms.credit import step_credit
from peira.algorithms.family import (
    AdvantageFunction,
    Algorithm,
    CreditFunction,
    ObserveFunction,
    Preparation,
    prepared,
)
from peira.algorithms.fipo import future_kl_weights
from peira.algorithms.kl import anchor_loss, kl_in_reward, kl_loss
from peira.algorithms.noise import correct_backward, correct_forward
from peira.algorithms.objective import Columns, TokenFilter, token_objective
from peira.algorithms.policy_loss import (
    clipped_surrogate,
    clipped_weight_loss,
    off_policy_rows,
    score_function_loss,
    sequence_surrogate,
    token_weights,
)
from peira.algorithms.ratio import with_mismatch_weights
from peira.config.algorithm import AlgorithmConfig, AvspoConfig, NoiseConfig, SignRepairConfig
from peira.errors import ConfigError


def build_algorithm(
    config: AlgorithmConfig, *, max_tokens: int, channels: Mapping[str, float] | None = None
) -> Algorithm:
    """The functions a resolved configuration names, with their numbers bound; the result pickles.

    Args:
        max_tokens: ceiling on generated tokens, `sampling.max_tokens`; the divisor of average = "constant".
        channels: weight of every verifier by name, in the order of `StepContext.channels`.

    Raises:
        ConfigError: a condition names a verifier that is not there.
    """
    plain = partial(
        staged_advantages,
        estimate=_estimate(config, channels or {}),
        whitening=_whitening(config),
        repair=_repair(config),
    )
    correct = _correction(config)
    return Algorithm(
        advantages=partial(plain, correct=correct),
        uncorrected=None if correct is None else plain,
        token_loss=partial(
            token_objective,
            policy_loss=_policy_loss(config),
            advantage_factor=_advantage_factor(config),
            kept=_kept(config),
            penalties=_penalties(config),
        ),
        weights=partial(
            token_weights, average=config.average, max_tokens=max_tokens, count_dead=config.count_dead
        ),
        needs_reference=config.kl.coefficient > 0,
        needs_old_logprobs=config.mismatch.old_logprobs == "learner",
        credit=_credit(config),
        anchor_loss=_anchor_loss(config),
        prepare=partial(prepared, steps=tuple(_preparation(config))),
        observe=_observer(config),
    )


def check_rates(noise: NoiseConfig, sources: Set[str]) -> None:
    """Refuse error rates of a data source that is not there.

    Raises:
        ConfigError: names it, and the nearest one.
    """
    for index, rates in enumerate(noise.rates):
        if rates.source not in sources:
            near = get_close_matches(rates.source, sources, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigError(
                f"algorithm.noise.rates.{index}.source = {rates.source!r}: expected a source of the training "
                f"data: {', '.join(sorted(sources))}{hint}"
            )


def _estimate(config: AlgorithmConfig, channels: Mapping[str, float]) -> AdvantageFunction:
    match config.advantage:
        case "group":
            return partial(group_advantages, baseline=config.baseline, scale=config.scale, eps=config.std_eps)
        case "max_likelihood":
            return maximum_likelihood_advantages
        case "pass_at_k":
            assert config.pass_k is not None
            return partial(
                pass_at_k_advantages,
                k=config.pass_k,
                baseline=config.baseline,
                scale=config.scale,
                eps=config.std_eps,
            )
        case "sign":
            return sign_advantages
        case "plain":
            return plain_advantages
        case "steps":
            return no_advantages
        case "channels":
            return partial(
                channel_advantages,
                weights=tuple(channels.values()),
                scale=config.scale,
                eps=config.std_eps,
                conditions=tuple(_conditions(config, list(channels))),
            )
        case _:
            assert_never(config.advantage)


def _conditions(config: AlgorithmConfig, names: list[str]) -> list[tuple[int, int, float]]:
    found = []
    for index, condition in enumerate(config.conditions):
        for key in ("channel", "requires"):
            name = getattr(condition, key)
            if name not in names:
                raise ConfigError(
                    f"algorithm.conditions.{index}.{key} = {name!r}: expected the name of a verifier: "
                    f"{', '.join(names)}"
                )
        found.append((names.index(condition.channel), names.index(condition.requires), condition.at_least))
    return found


def _correction(config: AlgorithmConfig) -> RewardMap | None:
    noise = config.noise
    match noise.correction:
        case "none":
            return None
        case "backward":
            return partial(
                correct_backward,
                false_positive_rate=noise.false_positive_rate,
                false_negative_rate=noise.false_negative_rate,
                min_gain=noise.min_gain,
            )
        case "forward":
            return partial(correct_forward, false_negative_rate=noise.false_negative_rate)
        case _:
            assert_never(noise.correction)


def _whitening(config: AlgorithmConfig) -> Repair | None:
    if config.whiten == "none":
        return None
    grouped = config.advantage in ("group", "channels", "max_likelihood", "pass_at_k")
    return partial(whitened, over=config.whiten, eps=config.std_eps, hold_dead=grouped)


def _repair(config: AlgorithmConfig) -> Repair | None:
    match config.repair:
        case None:
            return None
        case AvspoConfig() as avspo:
            return partial(
                avspo_repair,
                exponent=avspo.exponent,
                anchor=avspo.anchor,
                initial_trigger=avspo.trigger,
                scope=avspo.scope,
                window_steps=avspo.window_steps,
                decay=avspo.decay,
                sample_std=avspo.sample_std,
                eps=config.std_eps,
            )
        case SignRepairConfig() as sign:
            return partial(sign_repair, magnitude=sign.magnitude)
        case _:
            assert_never(config.repair)


def _observer(config: AlgorithmConfig) -> ObserveFunction | None:
    avspo = config.repair
    if not isinstance(avspo, AvspoConfig):
        return None
    return partial(
        avspo_observe,
        rate_step=avspo.trigger_step,
        initial_trigger=avspo.trigger,
        lowest_trigger=avspo.lowest_trigger,
        highest_trigger=avspo.highest_trigger,
        scope=avspo.scope,
        window_steps=avspo.window_steps,
        decay=avspo.decay,
    )


def _policy_loss(config: AlgorithmConfig) -> Columns:
    low, high = config.clip_low, config.clip_high
    match config.loss:
        case "clipped":
            return partial(clipped_surrogate, clip_low=low, clip_high=high, dual_clip=config.dual_clip)
        case "gspo":
            return partial(sequence_surrogate, clip_low=low, clip_high=high, dual_clip=config.dual_clip)
        case "cispo":
            return partial(clipped_weight_loss, clip_low=low, clip_high=high)
        case "reinforce":
            return score_function_loss
        case _:
            assert_never(config.loss)


def _advantage_factor(config: AlgorithmConfig) -> Columns | None:
    fipo = config.future_kl
    if fipo is None:
        return None
    return partial(future_kl_weights, **fipo.model_dump())


def _kept(config: AlgorithmConfig) -> TokenFilter | None:
    if config.mismatch.max_drop is None:
        return None
    return partial(off_policy_rows, max_drop=config.mismatch.max_drop)


def _penalties(config: AlgorithmConfig) -> tuple[TokenLoss, ...]:
    kl = config.kl
    if kl.coefficient == 0 or kl.place == "reward":
        return ()
    return (
        partial(
            kl_loss,
            coefficient=kl.coefficient,
            estimator=kl.estimator,
            off_policy=kl.off_policy,
            max_log_ratio=kl.max_log_ratio,
            other_coefficients=tuple(other.coefficient for other in kl.others),
        ),
    )


def _credit(config: AlgorithmConfig) -> CreditFunction | None:
    process = config.process
    if process is None:
        return None
    return partial(
        step_credit,
        scale=config.scale,
        eps=config.std_eps,
        reach=process.reach,
        coefficient=process.coefficient,
    )


def _anchor_loss(config: AlgorithmConfig) -> TokenLoss | None:
    anchors = config.anchors
    if anchors is None:
        return None
    return partial(
        anchor_loss,
        coefficient=anchors.coefficient,
        generator=anchors.generator,
        max_log_ratio=anchors.max_log_ratio,
        alpha=anchors.alpha or 0.5,  # read by generator = alpha only, which has one
    )


def _preparation(config: AlgorithmConfig) -> list[Preparation]:
    kl, mismatch = config.kl, config.mismatch
    steps: list[Preparation] = []
    if kl.coefficient > 0 and kl.place != "loss":
        steps.append(
            partial(
                kl_in_reward,
                coefficient=kl.coefficient,
                estimator=kl.estimator,
                level=kl.level,
                max_log_ratio=kl.max_log_ratio,
            )
        )
    if mismatch.correction != "none":
        steps.append(
            partial(
                with_mismatch_weights,
                level=mismatch.level,
                excess=mismatch.correction,
                low=mismatch.low,
                high=mismatch.high,
                veto=mismatch.veto,
                normalise=mismatch.normalise,
            )
        )
    return steps
