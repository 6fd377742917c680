"""How rewards become a gradient. The named combinations are rows of `presets.py`."""

import difflib
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from peira.config.model import ModelConfig
from peira.config.presets import PRESETS
from peira.config.section import KIND, Section
from peira.config.verifier_compose import Nested


class OtherReferenceConfig(Section):
    """One more model to stay close to: an earlier release, or the base model."""

    model: ModelConfig
    """With the same vocabulary; held in memory, frozen."""
    coefficient: float = Field(gt=0)
    """Of its penalty, which adds to the others."""


class KLConfig(Section):
    """A penalty for leaving the reference; which divergence it descends depends on estimator and place."""

    coefficient: float = Field(default=0.0, ge=0)
    """0 means no reference model is loaded."""
    estimator: Literal["k1", "k2", "k3"] = "k3"
    """In the loss k2 descends KL(policy || reference), k3 KL(reference || policy); in the reward use k1."""
    place: Literal["loss", "reward", "both"] = "loss"
    """loss: a term beside the policy's; reward: subtracted from the advantage after its scaling."""
    level: Literal["token", "return_to_go", "sequence"] = "sequence"
    """In the reward: each token's own estimate, the sum from it on, or the completion's against siblings'."""
    off_policy: bool = False
    """In the loss: weigh by the ratio to the old policy; all three then descend KL(policy || reference)."""
    max_log_ratio: float | None = Field(default=None, gt=0)
    """Clamp the log-ratio to the reference at this many nats; also stops the gradient beyond."""
    others: tuple[OtherReferenceConfig, ...] = ()
    """Further references beside the model that training begins with; same estimator, in the loss."""
    allow_biased: bool = False
    """Accept an estimator whose gradient is not that of a KL where it is placed: for studies."""


class ProcessConfig(Section):
    """Process supervision: a verifier's scores of reasoning steps become advantages of their tokens."""

    verifier: str
    """Name of the verifier whose step scores are trained on; its own score counts by its weight."""
    separator: str = Field(default="\n\n", min_length=1)
    """Ends a step in the completion's text."""
    reach: Literal["to_go", "own"] = "to_go"
    """to_go: a token gets the sum of the steps that end at it or later; own: its own step's."""
    coefficient: float = Field(default=1.0, gt=0)
    """Of what is added to the advantages."""


class AnchorsConfig(Section):
    """DPH-RL: stay close to the untrained model on right answers of its own, sampled once before training."""

    coefficient: float = Field(default=0.1, gt=0)
    """Of the divergence, a mean over the step's anchor tokens, beside the policy's loss."""
    generator: Literal["forward", "reverse", "js", "alpha"] = "forward"
    """Which divergence: KL(model || policy), KL(policy || model), twice Jensen-Shannon, or in between."""
    alpha: float | None = Field(default=None, gt=0, lt=1)
    """For generator = alpha: towards forward near 1, reverse near 0."""
    max_log_ratio: float | None = Field(default=None, gt=0)
    """Clamp log-ratios at this many nats; also stops the gradient beyond."""
    tasks: int = Field(default=64, ge=1)
    """Training tasks that are sampled, or all when there are fewer."""
    samples: int = Field(default=4, ge=1)
    """Completions per task."""
    min_outcome: float = 1.0
    """Those with at least this outcome are kept; equal ones once."""
    per_step: int = Field(default=16, ge=1)
    """Anchors beside each update of a step; round and round over all."""


class MismatchConfig(Section):
    """Importance weights for the gap between the sampler and the learner that starts to update."""

    correction: Literal["none", "truncate", "mask"] = "truncate"
    """truncate: cap weights at `high`; mask: drop what lies outside [low, high]."""
    level: Literal["token", "sequence_product", "sequence_geometric"] = "token"
    """One weight per token, or per completion: the product of its tokens' or their geometric mean."""
    low: float = Field(default=0.5, ge=0)
    """Lower edge of the band; for correction = mask."""
    high: float = Field(default=2.0, gt=0)
    """Cap, or upper edge of the band."""
    veto: float | None = Field(default=None, gt=0, lt=1)
    """Drop completions with any token ratio below this (1e-4 or less)."""
    normalise: bool = False
    """Divide weights by their mean, so that the step keeps its size."""
    old_logprobs: Literal["auto", "learner"] = "auto"
    """auto: the sampler's while rollouts are used for one update, with no weight beside them; learner: always
    the learner's own, at the price of a forward pass."""
    max_lag: int | None = Field(default=None, ge=0)
    """Drop completions drawn by weights more than so many optimizer steps older than the learner's (8). The
    loop draws with current weights, so this only acts where a sampler continues or returns older rollouts."""
    max_drop: float | None = Field(default=None, gt=0)
    """Drop bad completions whose log-prob per token fell by more than this since the batch began (0.5)."""


class FutureKLConfig(Section):
    """FIPO: weigh each token's advantage by where the policy is taking the rest of the completion."""

    half_life_tokens: float = Field(default=32.0, ge=0)
    """Distance at which a future token counts half."""
    low: float = Field(default=1.0, gt=0)
    """Smallest factor on an advantage."""
    high: float = Field(default=1.2, gt=0)
    """Largest factor on an advantage."""
    max_ratio: float = Field(default=10.0, gt=1)
    """Tokens whose ratio exceeds this count as 0 in the sum."""
    safety_ratio: float = Field(default=10.0, gt=1)
    """Beyond this ratio a token with a negative advantage is not amplified."""
    safety: Literal["one", "cap"] = "one"
    """one: its factor is 1; cap: it lies in [0.8, 1]."""


class AvspoConfig(Section):
    """AVSPO: collapsed groups get the advantage they would have beside a few imagined rewards."""

    kind: Literal["avspo"] = "avspo"
    exponent: float = Field(default=0.5, gt=0)
    """Of the collapse rate in the number of imagined rewards."""
    anchor: float = Field(default=0.1, gt=0)
    """Largest imagined reward of an all-wrong group; matters only through std_eps."""
    trigger: float = Field(default=0.5, ge=0, le=1)
    """Repair when the collapse rate exceeds this; where the adaptive trigger starts."""
    trigger_step: float = Field(default=0.01, ge=0, le=1)
    """How fast the trigger follows; 0 keeps it."""
    lowest_trigger: float = Field(default=0.1, ge=0, le=1)
    """The trigger stays at or above this."""
    highest_trigger: float = Field(default=0.9, ge=0, le=1)
    """The trigger stays at or below this."""
    scope: Literal["step", "window", "average"] = "step"
    """Collapse rate of the step, of the last `window_steps`, or a running average."""
    window_steps: int = Field(default=10, ge=1)
    """Steps in the window."""
    decay: float = Field(default=0.9, ge=0, lt=1)
    """Of the running average."""
    sample_std: bool = False
    """Divisor n - 1 instead of n."""

    @model_validator(mode="after")
    def _ordered(self) -> "AvspoConfig":
        if not self.lowest_trigger <= self.trigger <= self.highest_trigger:
            raise ValueError(
                f"trigger = {self.trigger!r}: expected a number between lowest_trigger = "
                f"{self.lowest_trigger} and highest_trigger = {self.highest_trigger}"
            )
        return self


class SignRepairConfig(Section):
    """Collapsed groups get plus or minus one constant, by their outcome."""

    kind: Literal["sign"] = "sign"
    magnitude: float = Field(default=0.5, gt=0)
    """The constant, in units of advantage."""


class SourceRatesConfig(Section):
    """Error rates on the tasks of one data source."""

    source: str
    """Name of the data source."""
    false_positive_rate: float = Field(default=0.0, ge=0, lt=1)
    """Chance that a wrong answer is accepted."""
    false_negative_rate: float = Field(default=0.0, ge=0, lt=1)
    """Chance that a right answer is rejected."""


class AppealsConfig(Section):
    """A share of the rejections goes to a second opinion: an estimate of the false negative rate."""

    verifier: Nested
    """The second opinion: more lenient and dearer. It changes no reward."""
    share: float = Field(default=0.1, gt=0, le=1)
    """Chance that a rejection is appealed."""
    decay: float = Field(default=0.9, ge=0, lt=1)
    """Of the running counts, per step."""
    confidence: float = Field(default=0.95, gt=0, lt=1)
    """Of the interval of J."""
    min_appeals: int = Field(default=100, ge=0)
    """After so many appeals the run stops (exit 6) when the interval of J reaches 0; 0 never stops it."""


class NoiseConfig(Section):
    """Correction for a verifier that errs at known rates, for binary rewards."""

    correction: Literal["none", "backward", "forward"] = "none"
    """backward: estimate the true reward, then compare; forward: a coefficient; needs no false positives."""
    false_positive_rate: float = Field(default=0.0, ge=0, lt=1)
    """Chance that a wrong answer is accepted, where no rate is known for the rollout's source."""
    false_negative_rate: float = Field(default=0.0, ge=0, lt=1)
    """Chance that a right answer is rejected, where no rate is known for the rollout's source."""
    rates: tuple[SourceRatesConfig, ...] = ()
    """Rates by data source; a source that is not named has the two above."""
    min_gain: float = Field(default=0.05, gt=0, le=1)
    """Floor of 1 - both rates in the backward correction's denominator."""
    appeals: AppealsConfig | None = None
    """Estimate the false negative rate online, in place of the one above; logs J with its interval."""
    drift_rate: float | None = Field(default=None, gt=0)
    """Draw the pass rate that the RLVeR equation predicts from the given rates beside the run: its rate, in
    logits per step. Changes nothing that is trained."""


class ConditionConfig(Section):
    """An easy reward that counts only where a hard one is met."""

    channel: str
    """Name of the verifier whose score becomes 0 where the condition fails."""
    requires: str
    """Name of the verifier that must reach `at_least`."""
    at_least: float = 1.0
    """Score that meets the condition."""


RepairConfig = Annotated[AvspoConfig | SignRepairConfig, *KIND]


class AlgorithmConfig(Section):
    """A row of `presets.py`, with any field changed."""

    shorthand: ClassVar[str | None] = "name"

    name: str = "standard"
    """The preset that fills every field not given here."""
    advantage: Literal["group", "max_likelihood", "pass_at_k", "sign", "plain", "channels", "steps"] = "group"
    """group: against siblings; max_likelihood: over the group's mean; pass_at_k: for the best of `pass_k`;
    sign: 2 * reward - 1; plain: the reward; channels: each verifier against its group, then summed;
    steps: nothing but what `process` adds."""
    pass_k: int | None = Field(default=None, ge=1)
    """Attempts of which one must succeed; for advantage = pass_at_k, below group_size."""
    conditions: tuple[ConditionConfig, ...] = ()
    """Verifiers that count only where another is met; for advantage = channels."""
    baseline: Literal["group_mean", "leave_one_out"] = "group_mean"
    """Subtracted from a reward: the mean of its whole group, or of the other members."""
    scale: Literal["none", "population_std", "sample_std"] = "none"
    """Divide centred rewards by the group's standard deviation, of this kind, or keep reward units."""
    std_eps: float = Field(default=1e-6, ge=0)
    """Added to that standard deviation, in reward units."""
    whiten: Literal["none", "rollouts", "tokens"] = "none"
    """Then subtract the step's mean advantage and divide by its std, over rollouts or over tokens."""
    repair: RepairConfig | None = None
    """What collapsed groups get instead of 0."""
    noise: NoiseConfig = NoiseConfig()
    """Correction for a verifier that errs."""
    loss: Literal["clipped", "gspo", "cispo", "reinforce"] = "clipped"
    """clipped: PPO's surrogate per token; gspo: one ratio per completion; cispo: clipped weights, every token
    keeps its gradient; reinforce: no ratio."""
    clip_low: float = Field(default=0.2, gt=0, le=1)
    """The ratio is held at or above 1 - clip_low."""
    clip_high: float = Field(default=0.28, gt=0)
    """The ratio is held at or below 1 + clip_high."""
    dual_clip: float | None = Field(default=None, gt=1)
    """Bound the loss of a negative advantage at this many times its size; None leaves it unbounded."""
    future_kl: FutureKLConfig | None = None
    """FIPO's factor on advantages; `{}` for its defaults."""
    mismatch: MismatchConfig = MismatchConfig()
    """Weights for the gap between sampler and learner."""
    average: Literal["sequence_mean", "sequence_sum", "token_mean", "constant"] = "token_mean"
    """How token losses are averaged; see `algorithms.policy_loss.token_weights`."""
    count_dead: bool = False
    """Whether rollouts of groups without a signal count in the average's denominator, as in the papers'
    formulas (a half dead batch makes half the step), or the live groups share the whole step."""
    dynamic_sampling: bool = False
    """Draw again until `prompts_per_step` groups have a signal, within `max_refills` further draws."""
    max_refills: int = Field(default=3, ge=0)
    """Further draws of dynamic sampling within one step."""
    overlong_buffer_tokens: int = Field(default=0, ge=0)
    """Soft overlong penalty over the last this many tokens before `sampling.max_tokens`; 0 for none."""
    overlong_penalty: float = Field(default=1.0, ge=0)
    """Subtracted, in reward units, when the completion reaches `sampling.max_tokens`."""
    kl: KLConfig = KLConfig()
    """Penalty for leaving the reference."""
    process: ProcessConfig | None = None
    """Scores of reasoning steps, on top of the advantage; `scale` holds for all steps of a group together."""
    anchors: AnchorsConfig | None = None
    """Hold on to what the untrained model could do; `{}` for its defaults."""

    @model_validator(mode="before")
    @classmethod
    def _fill_from_preset(cls, value: Any) -> Any:
        if isinstance(value, str):
            value = {"name": value}
        if not isinstance(value, dict):
            return value
        name = value.get("name", cls.model_fields["name"].default)
        if name not in PRESETS:
            near = difflib.get_close_matches(str(name), PRESETS, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise ValueError(f"name = {name!r}: expected one of {', '.join(PRESETS)}; {hint}".rstrip("; "))
        return _merged(PRESETS[name], value)

    @model_validator(mode="after")
    def _combinations(self) -> "AlgorithmConfig":
        problems = [f"{key} = {_value_at(self, key)!r}: {text}" for key, text in _contradictions(self)]
        if problems:
            raise ValueError("\n".join(problems))
        return self


def _contradictions(given: AlgorithmConfig) -> Iterator[tuple[str, str]]:
    """(setting, what was expected and the way out) for all that would be ignored or cancel out."""
    yield from _advantage_contradictions(given)
    yield from _step_contradictions(given)
    yield from _noise_contradictions(given)
    yield from _loss_contradictions(given)
    yield from _kl_contradictions(given.kl)
    anchors = given.anchors
    if anchors is not None and (anchors.alpha is None) == (anchors.generator == "alpha"):
        yield "anchors.alpha", "expected a number with anchors.generator = alpha and none otherwise"


def _advantage_contradictions(given: AlgorithmConfig) -> Iterator[tuple[str, str]]:
    method = given.advantage
    if (given.pass_k is None) == (method == "pass_at_k"):
        yield (
            "pass_k",
            "expected a number with advantage = pass_at_k and none otherwise; set both or neither",
        )
    if given.conditions and method != "channels":
        yield "conditions", "expected none unless advantage = channels, which alone sees the channels apart"
    if method not in ("group", "pass_at_k") and given.baseline != "group_mean":
        yield "baseline", f"expected no baseline with advantage = {method}, which has its own; leave it out"
    if method in ("max_likelihood", "sign", "plain") and given.scale != "none":
        yield "scale", f"expected none with advantage = {method}, which is not divided by a group's std"
    if method == "channels" and given.scale == "none":
        yield "scale", "expected a std with advantage = channels: unscaled, it is the plain weighted sum"
    if method == "channels" and given.overlong_buffer_tokens > 0:
        yield (
            "overlong_buffer_tokens",
            "expected 0 with advantage = channels, which reads verifiers and not the shaped reward; "
            "give the length its own verifier",
        )
    if method in ("max_likelihood", "pass_at_k", "sign") and given.overlong_buffer_tokens > 0:
        yield "overlong_buffer_tokens", f"expected 0 with advantage = {method}, which needs rewards in [0, 1]"
    if method == "plain" and given.whiten == "none" and given.noise.correction != "forward":
        yield "whiten", "expected rollouts or tokens with advantage = plain, which has no other baseline"
    if method in ("sign", "plain") and given.dynamic_sampling:
        yield (
            "dynamic_sampling",
            f"expected false with advantage = {method}, which learns from groups that all agree; "
            "drawing again would discard them",
        )
    if given.repair is not None and given.dynamic_sampling:
        yield (
            "dynamic_sampling",
            "expected false beside a repair: collapsed groups would be replaced before they are repaired",
        )
    if given.repair is not None and method in ("sign", "plain"):
        yield "repair", f"expected none with advantage = {method}: its collapsed groups have a signal already"
    if given.repair is not None and given.scale == "none" and method == "group":
        yield (
            "scale",
            "expected a std beside a repair, whose constant is in units of a standardised advantage; "
            "set scale: population_std",
        )


def _step_contradictions(given: AlgorithmConfig) -> Iterator[tuple[str, str]]:
    if given.advantage != "steps":
        return
    if given.process is None:
        yield "process", "expected a section with advantage = steps, which has no other signal"
    void = "expected nothing with advantage = steps, to which outcomes mean nothing; leave it out"
    for name in ("whiten", "repair", "overlong_buffer_tokens", "dynamic_sampling"):
        if getattr(given, name) != AlgorithmConfig.model_fields[name].default:
            yield name, void
    if given.noise.correction != "none":
        yield "noise.correction", void


def _noise_contradictions(given: AlgorithmConfig) -> Iterator[tuple[str, str]]:
    noise = given.noise
    if noise.drift_rate is not None:
        if noise.correction != "none":
            yield (
                "noise.drift_rate",
                "expected none beside a correction: the equation is for uncorrected rewards",
            )
        if given.advantage != "group" or given.scale != "population_std" or given.repair is not None:
            yield (
                "noise.drift_rate",
                "expected none but with advantage = group, scale = population_std and no repair, which the "
                "equation is about",
            )
    if noise.correction == "none":
        used = (
            {"false_positive_rate", "false_negative_rate", "rates"} if noise.drift_rate is not None else set()
        )
        used |= {"false_positive_rate"} if noise.appeals is not None else set()
        for name in ("false_positive_rate", "false_negative_rate", "rates", "min_gain"):
            if name not in used and getattr(noise, name) != NoiseConfig.model_fields[name].default:
                yield f"noise.{name}", "expected no rate where nothing is corrected; set noise.correction"
        return
    pairs = [("noise.false_negative_rate", noise.false_positive_rate, noise.false_negative_rate)]
    pairs += [
        (f"noise.rates.{i}.false_negative_rate", own.false_positive_rate, own.false_negative_rate)
        for i, own in enumerate(noise.rates)
    ]
    for key, positive, negative in pairs:
        if positive + negative >= 1:
            yield (
                key,
                "expected rates that add up to less than 1: beyond that the verifier points the other way",
            )
    sources = [own.source for own in noise.rates]
    for i, source in enumerate(sources):
        if source in sources[:i]:
            yield f"noise.rates.{i}.source", "expected each source once"
    if given.scale != "none" or given.whiten != "none":
        yield (
            "noise.correction",
            "expected none where advantages are divided by a std: the correction is affine in the reward and "
            "cancels; use scale: none and whiten: none",
        )
    if given.repair is not None:
        yield (
            "repair",
            "expected none beside a noise correction: which groups are collapsed is then uncertain",
        )
    if given.overlong_buffer_tokens > 0:
        yield "overlong_buffer_tokens", "expected 0 beside a noise correction, which is for binary rewards"
    if noise.correction == "backward" and given.advantage != "group":
        yield "noise.correction", "expected advantage = group, best with baseline: leave_one_out"
    if noise.correction == "forward":
        if given.advantage != "plain":
            yield (
                "noise.correction",
                "expected advantage = plain with forward: the corrected reward is the coefficient itself",
            )
        if noise.false_positive_rate > 0 and noise.appeals is None:
            yield "noise.false_positive_rate", "expected 0: the forward correction does not read it"
        for i, own in enumerate(noise.rates):
            if own.false_positive_rate > 0:
                yield (
                    f"noise.rates.{i}.false_positive_rate",
                    "expected 0: the forward correction does not read it",
                )


def _loss_contradictions(given: AlgorithmConfig) -> Iterator[tuple[str, str]]:
    loss = given.loss
    if loss in ("cispo", "reinforce") and given.dual_clip is not None:
        yield "dual_clip", f"expected none with loss = {loss}, which clips no loss"
    if loss == "reinforce":
        for name in ("clip_low", "clip_high"):
            if getattr(given, name) != AlgorithmConfig.model_fields[name].default:
                yield name, "expected nothing with loss = reinforce, which has no ratio to clip; leave it out"
    if loss == "reinforce" and given.mismatch.max_drop is not None:
        yield "mismatch.max_drop", "expected none with loss = reinforce, which reads no old log-probs"
    if given.clip_low == 1 and loss in ("clipped", "gspo"):
        yield "clip_low", "expected less than 1: a ratio is never below 0, so there would be no lower bound"
    if given.future_kl is not None and loss in ("gspo", "reinforce"):
        yield "future_kl", f"expected none with loss = {loss}, which has no ratio per token"
    if given.future_kl is not None and given.future_kl.low > given.future_kl.high:
        yield "future_kl.low", f"expected at most future_kl.high = {given.future_kl.high}"
    mismatch, fields = given.mismatch, MismatchConfig.model_fields
    if mismatch.correction != "mask" and mismatch.low != fields["low"].default:
        yield "mismatch.low", "expected no lower edge unless mismatch.correction = mask"
    if mismatch.correction == "mask" and mismatch.low >= mismatch.high:
        yield "mismatch.low", f"expected less than mismatch.high = {mismatch.high}"
    if mismatch.correction == "none":
        for name in ("level", "high", "veto", "normalise"):
            if getattr(mismatch, name) != fields[name].default:
                yield f"mismatch.{name}", "expected nothing where mismatch.correction = none; leave it out"


def _kl_contradictions(kl: KLConfig) -> Iterator[tuple[str, str]]:
    if kl.coefficient == 0:
        for name in ("place", "level", "off_policy", "max_log_ratio", "others", "allow_biased"):
            if getattr(kl, name) != KLConfig.model_fields[name].default:
                yield f"kl.{name}", "expected nothing where the penalty is off; set kl.coefficient"
        return
    if kl.place == "loss" and kl.level != KLConfig.model_fields["level"].default:
        yield "kl.level", "expected nothing in the loss, where the penalty acts token by token; leave it out"
    if kl.place != "loss" and kl.others:
        yield "kl.others", "expected none outside the loss: in the reward there is one reference"
    if kl.place != "loss" and kl.off_policy:
        yield "kl.off_policy", "expected false outside the loss: in the reward the estimate is fixed"
    if kl.allow_biased:
        return
    if kl.place == "reward" and kl.estimator != "k1":
        yield (
            "kl.estimator",
            "expected k1 in the reward: k3 there pushes away from the reference, k2 is biased; "
            "kl.allow_biased: true accepts it",
        )
    if kl.place == "reward" and kl.level == "token":
        yield (
            "kl.level",
            "expected return_to_go or sequence: a token's own estimate misses what it does to later ones; "
            "kl.allow_biased: true accepts it",
        )
    if kl.place == "both" and kl.estimator == "k2":
        yield "kl.estimator", "expected k1 or k3 in both places; kl.allow_biased: true accepts k2"


def _value_at(section: Section, path: str) -> Any:
    """The value of a dotted setting."""
    value: Any = section
    for name in path.split("."):
        value = value[int(name)] if name.isdigit() else getattr(value, name)
    return value


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Both mappings at every depth; where they disagree, the second wins."""
    result = below | above
    for key in below.keys() & above.keys():
        if isinstance(below[key], dict) and isinstance(above[key], dict):
            result[key] = _merged(below[key], above[key])
    return result
