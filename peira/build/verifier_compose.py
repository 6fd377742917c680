"""Configuration -> verifiers made of verifiers."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, assert_never

from peira.config.load import load_settings
from peira.config.verifier import JudgesConfig, VerifierConfig
from peira.config.verifier_compose import (
    AllOfConfig,
    ComposedConfig,
    FirstThatAppliesConfig,
    GatedConfig,
    IncorrectConfig,
    LengthShapedConfig,
    MajorityConfig,
    NoisyConfig,
    PerTurnConfig,
    StepsConfig,
    WeightedSumConfig,
)
from peira.verifiers.compose import (
    AllOf,
    FirstThatApplies,
    Gated,
    LengthShaped,
    Member,
    PerTurn,
    Steps,
    WeightedSum,
)
from peira.verifiers.control import IncorrectVerifier, MajorityVerifier
from peira.verifiers.noisy import NoisyVerifier
from peira.verifiers.protocol import Verifier

Build = Callable[[VerifierConfig], Verifier]


def build_composed(config: ComposedConfig, build: Build) -> Verifier:
    """The verifier that a composition describes; `build` makes its members."""

    def one(settings: Mapping[str, Any]) -> Verifier:
        return build(_config(settings))

    match config:
        case WeightedSumConfig():
            return WeightedSum(members=_members(config.of, build))
        case AllOfConfig():
            return AllOf(members=_members(config.of, build))
        case FirstThatAppliesConfig():
            return FirstThatApplies(members=_members(config.of, build))
        case GatedConfig():
            return Gated(gate=one(config.gate), verifier=one(config.of), threshold=config.threshold)
        case LengthShapedConfig():
            return LengthShaped(
                verifier=one(config.of),
                free=config.free,
                limit=config.limit,
                floor=config.floor,
                unit=config.unit,
            )
        case PerTurnConfig():
            return PerTurn(verifier=one(config.of), reduce=config.reduce)
        case StepsConfig():
            return Steps(verifier=one(config.of), reduce=config.reduce)
        case NoisyConfig():
            return NoisyVerifier(
                verifier=one(config.of),
                false_positive_rate=config.false_positive_rate,
                false_negative_rate=config.false_negative_rate,
                threshold=config.threshold,
                seed=config.seed,
            )
        case IncorrectConfig():
            return IncorrectVerifier(verifier=one(config.of), threshold=config.threshold)
        case MajorityConfig():
            return MajorityVerifier(verifier=one(config.of), column=config.column)
        case _:
            assert_never(config)


def _config(settings: Mapping[str, Any]) -> VerifierConfig:
    return load_settings(JudgesConfig, {"verifiers": [dict(settings)]}).verifiers[0]


def _members(of: Sequence[Mapping[str, Any]], build: Build) -> tuple[Member, ...]:
    configs = [_config(settings) for settings in of]
    return tuple(
        Member(name=config.name or config.kind, verifier=build(config), weight=config.weight)
        for config in configs
    )
