"""Configuration -> verifiers."""

from collections.abc import Sequence
from typing import assert_never

from peira.build.verifier_code import build_code_verifier
from peira.build.verifier_judge import build_judge, build_rubric
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
from peira.config.verifier_code import CodeConfig
from peira.config.verifier_judge import JudgeConfig, RubricConfig
from peira.verifiers.channels import Channel, VerifierSet
from peira.verifiers.choice import ChoiceVerifier
from peira.verifiers.exact import ExactVerifier
from peira.verifiers.format import FormatVerifier
from peira.verifiers.forms import Policy
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
            return _math(config)
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
        case CodeConfig():
            return build_code_verifier(config)
        case JudgeConfig():
            return build_judge(config)
        case RubricConfig():
            return build_rubric(config)
        case _:
            assert_never(config)


def _math(config: MathConfig) -> MathVerifier:
    policy = Policy(
        log_base=config.log_base,
        percent=config.percent,
        significant_digits=config.significant_digits,
        missing_unit=config.missing_unit,
        unknown_unit=config.unknown_unit,
        convert_units=config.convert_units,
        approximate_tail=config.approximate_tail,
        text_case=config.text_case,
    )
    return MathVerifier(
        extract=config.extract, policy=policy, max_boxes=config.max_boxes, math_verify=config.math_verify
    )


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
