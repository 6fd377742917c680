"""Configuration -> verifiers."""

from collections.abc import Mapping, Sequence
from typing import Any, assert_never

from peira.build.verifier_code import build_code_verifier
from peira.build.verifier_compose import build_composed
from peira.build.verifier_formal import build_coq, build_lean, build_prolog
from peira.build.verifier_judge import build_judge, build_rubric
from peira.config.load import load_config, load_settings
from peira.config.verifier import (
    ChoiceConfig,
    ExactConfig,
    FormatConfig,
    FunctionConfig,
    JudgesConfig,
    JudgingConfig,
    MathConfig,
    NumericConfig,
    RandomConfig,
    ReasoningGymVerifierConfig,
    RemoteConfig,
    VerifierConfig,
)
from peira.config.verifier_code import CodeConfig
from peira.config.verifier_compose import ComposedConfig
from peira.config.verifier_formal import CoqConfig, LeanConfig, PrologConfig
from peira.config.verifier_judge import JudgeConfig, RubricConfig
from peira.verifiers.channels import Channel, VerifierSet
from peira.verifiers.choice import ChoiceVerifier
from peira.verifiers.control import RandomVerifier
from peira.verifiers.exact import ExactVerifier
from peira.verifiers.format import FormatVerifier
from peira.verifiers.forms import Policy
from peira.verifiers.function import FunctionVerifier
from peira.verifiers.gym import ReasoningGymVerifier
from peira.verifiers.mathematics import MathVerifier
from peira.verifiers.numeric import NumericVerifier
from peira.verifiers.protocol import Verifier
from peira.verifiers.remote import RemoteVerifier


def build_verifier(config: VerifierConfig) -> Verifier:
    """The verifier that a configuration describes.

    Raises:
        ConfigError: a setting that only the verifier itself can check.
    """
    if isinstance(config, ComposedConfig):
        return build_composed(config, build_verifier)
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
        case RandomConfig():
            return RandomVerifier(probability=config.probability, seed=config.seed)
        case ReasoningGymVerifierConfig():
            return ReasoningGymVerifier(extract=config.extract, partial=config.partial)
        case FunctionConfig():
            return _function(config)
        case RemoteConfig():
            return RemoteVerifier(url=config.url, channel=config.channel, patience_s=config.patience_s)
        case CodeConfig():
            return build_code_verifier(config)
        case CoqConfig():
            return build_coq(config)
        case LeanConfig():
            return build_lean(config)
        case PrologConfig():
            return build_prolog(config)
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
        unevaluated=config.unevaluated,
        missing_unit=config.missing_unit,
        unknown_unit=config.unknown_unit,
        convert_units=config.convert_units,
        approximate_tail=config.approximate_tail,
        text_case=config.text_case,
    )
    return MathVerifier(
        extract=config.extract, policy=policy, max_boxes=config.max_boxes, math_verify=config.math_verify
    )


def _function(config: FunctionConfig) -> FunctionVerifier:
    verifier = FunctionVerifier(ref=config.ref, options=config.options, form=config.form, range=config.range)
    verifier.prepare()  # here already: a reference that leads nowhere is a setting to correct
    return verifier


def verifiers_from(name: str, settings: Sequence[str] = ()) -> tuple[list[Channel], JudgingConfig]:
    """The verifiers that one word names: a kind, a function, or a recipe with its list.

    Args:
        name: `math` and its like, `file.py:function`, `package.module:function`, `http://host:port`, or
            `recipe.yaml`.
        settings: `setting=value` of the verifier, or `judging.setting=value`; of a recipe, any setting.

    Raises:
        ConfigError: no such verifier, or a setting that it does not have.
    """
    if name.endswith((".yaml", ".yml")):
        run = load_config(name, settings)
        return [_channel(config) for config in run.verifiers], run.judging
    chosen = {"kind": name}
    if name.startswith(("http://", "https://")):
        chosen = {"kind": "remote", "url": name}
    elif ":" in name:
        chosen = {"kind": "function", "ref": name}
    placed = [text if text.startswith("judging.") else f"verifiers.0.{text}" for text in settings]
    judges = load_settings(JudgesConfig, {"verifiers": [chosen]}, placed)
    return [_channel(config) for config in judges.verifiers], judges.judging


def build_verifiers(configs: Sequence[VerifierConfig], judging: JudgingConfig) -> VerifierSet:
    """All channels of a run in one pool of worker processes. The caller closes it."""
    return VerifierSet(
        [_channel(config) for config in configs],
        workers=judging.workers,
        timeout_s=judging.timeout_s,
        memory_limit_bytes=judging.memory_limit_bytes,
    )


def build_second_opinion(verifier: Mapping[str, Any], judging: JudgingConfig) -> VerifierSet:
    """The one verifier that hears appeals, in a worker of its own. The caller closes it."""
    judges = load_settings(JudgesConfig, {"verifiers": [dict(verifier)]})
    return build_verifiers(judges.verifiers, judging.model_copy(update={"workers": 1}))


def _channel(config: VerifierConfig) -> Channel:
    return Channel(
        name=config.name or config.kind,
        verifier=build_verifier(config),
        weight=config.weight,
        always=config.always,
        timeout_s=config.timeout_s,
    )
