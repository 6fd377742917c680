"""Which verifiers judge, and how they are run."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from peira.config.channel import ChannelConfig
from peira.config.section import KIND, Section
from peira.config.verifier_code import CodeConfig
from peira.config.verifier_compose import ComposedConfig
from peira.config.verifier_formal import CoqConfig, LeanConfig, PrologConfig
from peira.config.verifier_judge import JudgeConfig, RubricConfig


class MathConfig(ChannelConfig):
    """Mathematical equality in normal form; math-verify for references that have none."""

    kind: Literal["math"] = "math"
    extract: Literal["boxed", "final", "tag", "whole"] = "boxed"
    """boxed: the last \\boxed{}; final: that, else the last "answer is ..." or "#### ..." line; tag: the last
    `<answer>` element; whole: the whole text is the answer."""
    max_boxes: int | None = Field(default=None, ge=1)
    """More different boxed answers than this are no answer; None only counts them."""
    log_base: Literal["e", "10"] = "e"
    """What a bare \\log means."""
    percent: Literal["exact", "bare"] = "exact"
    """exact: 28 is not 28%; bare: they are the same answer."""
    significant_digits: int | None = Field(default=None, ge=1)
    """Accept a decimal that rounds the reference correctly to at least so many digits; None: exact only."""
    unevaluated: Literal["accept", "reject"] = "accept"
    """The reference is a number and the answer a calculation that has its value: 5! or 37 + 58."""
    missing_unit: Literal["accept", "reject"] = "accept"
    """The reference has a unit and the answer has none."""
    unknown_unit: Literal["accept", "reject"] = "reject"
    """The answer has a unit that is in no table (12 apples) and the reference has none."""
    convert_units: bool = True
    """100 cm is 1 m."""
    approximate_tail: Literal["reject", "ignore"] = "reject"
    """What follows an "approximately equal" sign: a reason to reject, or not read."""
    text_case: Literal["ignore", "exact"] = "ignore"
    """Of words; symbols always keep their case."""
    math_verify: bool = True
    """Ask math-verify when the reference is outside of our own grammar (integrals, sums, limits)."""


class NumericConfig(ChannelConfig):
    """One number, compared exactly or within a tolerance."""

    kind: Literal["numeric"] = "numeric"
    extract: Literal["boxed", "last", "whole"] = "last"
    """boxed: the last \\boxed{}; last: the last number in the text; whole: nothing but a number."""
    relative_tolerance: float = Field(default=0.0, ge=0)
    """Accept |answer - reference| up to this share of |reference|; 0 for equality."""


class ExactConfig(ChannelConfig):
    """The same text."""

    kind: Literal["exact"] = "exact"
    ignore_case: bool = False
    """Upper and lower case count as equal."""
    strip: bool = True
    """White space at both ends does not count."""


class ChoiceConfig(ChannelConfig):
    """One letter among several."""

    kind: Literal["choice"] = "choice"
    choices: str = "ABCD"
    """The letters there are."""


class FormatConfig(ChannelConfig):
    """The shape of a completion, whatever it says."""

    kind: Literal["format"] = "format"
    pattern: str
    """A regular expression that the whole completion must match; dot matches newlines."""


class RandomConfig(ChannelConfig):
    """A control: a toss that looks at nothing. For studies."""

    kind: Literal["random"] = "random"
    probability: float = Field(default=0.5, ge=0, le=1)
    """Chance of score 1."""
    seed: int = 0
    """The tosses follow from it, the task and the completion."""


class ReasoningGymVerifierConfig(ChannelConfig):
    """The scorer of the reasoning-gym family that made the task."""

    kind: Literal["reasoning_gym"] = "reasoning_gym"
    extract: Literal["auto", "tag", "boxed", "whole"] = "auto"
    """tag: the last `<answer>` element; boxed: the last \\boxed{}; whole: the whole text; auto: the first of
    these that is there."""
    partial: bool = True
    """Keep the partial credit that many families give; False: full score or nothing."""


class FunctionConfig(ChannelConfig):
    """Anyone's Python function."""

    shorthand: ClassVar[str | None] = "ref"

    kind: Literal["function"] = "function"
    ref: str
    """`path/to/file.py:function` or `package.module:function`."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Passed to the function by name, when it asks for them."""
    form: Literal["auto", "native", "native_batch", "trl", "verl", "openrlhf", "verifiers"] = "auto"
    """Whose calling convention; auto recognises it by the signature."""
    range: tuple[float, float] = (0.0, 1.0)
    """Smallest and largest number the function returns; mapped onto scores from 0 to 1."""


class RemoteConfig(ChannelConfig):
    """A verifier on another machine: `peira verify --serve`, or anything that speaks its JSON."""

    kind: Literal["remote"] = "remote"
    url: str = Field(pattern=r"^https?://")
    """Of the service, without `/verify`."""
    channel: str | None = None
    """Which of the service's channels; None where it has one."""
    patience_s: float = Field(default=8.0, gt=0)
    """Ask a busy or absent service again for so long; keep it below `judging.timeout_s`."""


VerifierConfig = Annotated[
    MathConfig
    | NumericConfig
    | ExactConfig
    | ChoiceConfig
    | FormatConfig
    | RandomConfig
    | ReasoningGymVerifierConfig
    | FunctionConfig
    | RemoteConfig
    | ComposedConfig
    | CodeConfig
    | CoqConfig
    | LeanConfig
    | PrologConfig
    | JudgeConfig
    | RubricConfig,
    *KIND,
]


class JudgingConfig(Section):
    """How verifiers are run and what becomes of what they could not judge."""

    workers: int = Field(default=2, ge=1)
    """Verifier processes."""
    timeout_s: float = Field(default=10.0, gt=0)
    """Wall-clock seconds for one attempt; the worker is killed after that."""
    memory_limit_bytes: int | None = Field(default=2 * 1024**3, ge=1)
    """Address space of a worker beyond what it needs to start; None for no limit."""
    truncated: Literal["score", "zero", "mask"] = "score"
    """Completions cut off by the token budget: judged as they are, reward 0, or no reward."""
    max_unjudged_fraction: float = Field(default=0.2, ge=0, le=1)
    """A larger share of unjudged rollouts in `patience_steps` steps on end stops the run (exit code 6)."""
    patience_steps: int = Field(default=1, ge=1)
    """How many steps on end that share may be exceeded before the run stops."""


class JudgesConfig(Section):
    """Verifiers without a run, as `peira verify` uses them."""

    verifiers: tuple[VerifierConfig, ...] = Field(min_length=1)
    judging: JudgingConfig = JudgingConfig()
