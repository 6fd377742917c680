"""Configuration -> verifiers."""

from collections.abc import Sequence
from typing import assert_never

from peira.config.verifier import (
    ChoiceConfig,
    ExactConfig,
    FormatConfig,
    FunctionConfig,
    JudgingConfig,
    MathConfig,
    NumericConfig,
    ReasoningGymVerifierConfig,
    VerifierConfig,
)
from peira.verifiers.channels import Channel, VerifierSet
from peira.verifiers.choice import ChoiceVerifier
from peira.verifiers.exact import ExactVerifier
from peira.verifiers.format import FormatVerifier
from peira.verifiers.function import FunctionVerifier
from peira.verifiers.gym import ReasoningGymVerifier
from peira.verifiers.mathematics import MathVerifier
from peira.verifiers.numeric import NumericVerifier
from peira.verifiers.protocol import Verifier


def build_verifier(config: VerifierConfig) -> Verifier:
    """The verifier that a configuration describes.

    Raises:
        ConfigError: a setting that only the verifier itself can check.
    """
    match config:
        case MathConfig():
            return MathVerifier(extract=config.extract)
        case NumericConfig():
            return NumericVerifier(extract=config.extract, relative_tolerance=config.relative_tolerance)
        case ExactConfig():
            return ExactVerifier(ignore_case=config.ignore_case, strip=config.strip)
        case ChoiceConfig():
            return ChoiceVerifier(choices=config.choices)
        case FormatConfig():
            return FormatVerifier(pattern=config.pattern)
        case ReasoningGymVerifierConfig():
            return ReasoningGymVerifier(extract=config.extract, partial=config.partial)
        case FunctionConfig():
            return FunctionVerifier(
                ref=config.ref, options=config.options, form=config.form, range=config.range
            )
        case _:
            assert_never(config)


def build_verifiers(configs: Sequence[VerifierConfig], judging: JudgingConfig) -> VerifierSet:
    """All channels of a run in one pool of worker processes. The caller closes it."""
    channels = [
        Channel(
            name=config.name or config.kind,
            verifier=build_verifier(config),
            weight=config.weight,
            always=config.always,
            timeout_s=config.timeout_s,
        )
        for config in configs
    ]
    return VerifierSet(
        channels,
        workers=judging.workers,
        timeout_s=judging.timeout_s,
        memory_limit_bytes=judging.memory_limit_bytes,
    )
