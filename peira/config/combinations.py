"""Settings that are fine alone and void or contradictory together.

Rules about one room's method stand in that room's section; here are those that need two sections, and those
of sampling, evaluation, schedule and checkpoints. Each gives the setting to change, what was expected, and
the way out, before anything loads; `tests/unit/config/test_combinations.py` shows one run that breaks each.
"""

from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from peira.config.algorithm import AlgorithmConfig, KLConfig
from peira.config.verifier import JudgingConfig

if TYPE_CHECKING:
    from peira.config.run import RunConfig

Problem = tuple[str, Any, str]
"""(setting, its value, what was expected and the way out)."""


def contradictions(run: "RunConfig") -> Iterator[Problem]:
    """Everything in this configuration that would be ignored or could not work."""
    yield from _folder(run)
    yield from _updates(run)
    yield from _verifiers(run)
    yield from _sampling(run)
    yield from _algorithm(run)
    yield from _reward_range(run)
    yield from _evaluation(run)
    yield from _schedule(run)


def _folder(run: "RunConfig") -> Iterator[Problem]:
    name = PurePath(run.name)
    if name.is_absolute() or ".." in name.parts or not name.parts:
        yield "name", run.name, "expected a folder below runs_dir; set runs_dir to write elsewhere"


def _updates(run: "RunConfig") -> Iterator[Problem]:
    if run.updates_per_step > run.prompts_per_step:
        yield (
            "updates_per_step",
            run.updates_per_step,
            f"expected at most prompts_per_step = {run.prompts_per_step}, since a group is never split "
            "between updates; use epochs_per_step for more passes",
        )


def _verifiers(run: "RunConfig") -> Iterator[Problem]:
    names = [verifier.name or verifier.kind for verifier in run.verifiers]
    for index, name in enumerate(names):
        if name in names[:index]:
            yield (
                f"verifiers.{index}.name",
                name,
                "expected a name no other verifier has; give it its own `name`",
            )
    if all(verifier.weight == 0 for verifier in run.verifiers):
        yield (
            "verifiers.0.weight",
            run.verifiers[0].weight,
            "expected a weight other than 0 for at least one verifier: nothing would be trained on",
        )
    for index, source in enumerate(run.data.sources):
        if source.verifier is not None and source.verifier not in names:
            close = get_close_matches(source.verifier, names, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            yield (
                f"data.sources.{index}.verifier",
                source.verifier,
                f"expected the name of one of the verifiers: {', '.join(names)}{hint}",
            )
    if run.judging.max_unjudged_fraction == 1 and run.judging.patience_steps != _default(
        JudgingConfig, "patience_steps"
    ):
        yield (
            "judging.patience_steps",
            run.judging.patience_steps,
            "expected no patience where no rule can fire; set judging.max_unjudged_fraction below 1",
        )


def _sampling(run: "RunConfig") -> Iterator[Problem]:
    reason = (
        "while training: the sampler would draw from another distribution than the learner scores, and every "
        "ratio would be biased by the kept mass; filter in `evaluation` only"
    )
    if run.sampling.top_p < 1:
        yield "sampling.top_p", run.sampling.top_p, f"expected 1 {reason}"
    if run.sampling.top_k > 0:
        yield "sampling.top_k", run.sampling.top_k, f"expected 0 {reason}"


def _algorithm(run: "RunConfig") -> Iterator[Problem]:
    algorithm, budget = run.algorithm, run.sampling.max_tokens
    if algorithm.baseline == "leave_one_out" and algorithm.scale != "none":
        yield (
            "algorithm.scale",
            algorithm.scale,
            "expected none with the leave_one_out baseline: after division by a std only a constant factor "
            "is left of it; use baseline: group_mean, or scale: none",
        )
    divides = algorithm.scale != "none" or algorithm.whiten != "none"
    if not divides and algorithm.std_eps != _default(AlgorithmConfig, "std_eps"):
        yield (
            "algorithm.std_eps",
            algorithm.std_eps,
            "expected no std_eps where no std is divided by; set algorithm.scale or leave it out",
        )
    if algorithm.dynamic_sampling and algorithm.max_refills == 0:
        yield (
            "algorithm.max_refills",
            0,
            "expected at least 1 with dynamic_sampling, which draws again; "
            "set algorithm.dynamic_sampling: false",
        )
    if not algorithm.dynamic_sampling and algorithm.max_refills != _default(AlgorithmConfig, "max_refills"):
        yield (
            "algorithm.max_refills",
            algorithm.max_refills,
            "expected no max_refills where nothing is drawn again; set algorithm.dynamic_sampling: true "
            "or leave it out",
        )
    buffer = algorithm.overlong_buffer_tokens
    if buffer >= budget and buffer > 0:
        yield (
            "algorithm.overlong_buffer_tokens",
            buffer,
            f"expected fewer than sampling.max_tokens = {budget}, or every completion would be penalised",
        )
    if buffer > 0 and algorithm.overlong_penalty == 0:
        yield (
            "algorithm.overlong_penalty",
            0.0,
            "expected more than 0 with an overlong buffer; set algorithm.overlong_buffer_tokens: 0 for none",
        )
    if buffer == 0 and algorithm.overlong_penalty != _default(AlgorithmConfig, "overlong_penalty"):
        yield (
            "algorithm.overlong_penalty",
            algorithm.overlong_penalty,
            "expected no penalty without a buffer; set algorithm.overlong_buffer_tokens or leave it out",
        )
    names = [verifier.name or verifier.kind for verifier in run.verifiers]
    if algorithm.process is not None and algorithm.process.verifier not in names:
        close = get_close_matches(algorithm.process.verifier, names, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        yield (
            "algorithm.process.verifier",
            algorithm.process.verifier,
            f"expected the name of one of the verifiers: {', '.join(names)}{hint}",
        )
    kl = algorithm.kl
    void = kl.estimator == "k1" and kl.place == "loss" and not (kl.off_policy or kl.allow_biased)
    if kl.coefficient > 0 and void:
        yield (
            "algorithm.kl.estimator",
            "k1",
            "expected k2 or k3 in the loss: the expected gradient of k1 there is 0, so it would add noise "
            "and hold nothing back",
        )
    if kl.coefficient == 0 and kl.estimator != _default(KLConfig, "estimator"):
        yield (
            "algorithm.kl.estimator",
            kl.estimator,
            "expected no estimator where the penalty is off; set algorithm.kl.coefficient or leave it out",
        )


def _reward_range(run: "RunConfig") -> Iterator[Problem]:
    algorithm = run.algorithm
    if algorithm.pass_k is not None and algorithm.pass_k >= run.group_size:
        yield (
            "algorithm.pass_k",
            algorithm.pass_k,
            f"expected less than group_size = {run.group_size}: a rollout is compared with what its siblings "
            "reach in as many attempts",
        )
    weights = [verifier.weight for verifier in run.verifiers]
    who: list[str] = [name for name in ("sign", "pass_at_k") if algorithm.advantage == name]
    who += ["a repair"] if algorithm.repair is not None else []
    who += ["a noise correction"] if algorithm.noise.correction != "none" else []
    who += ["appeals"] if algorithm.noise.appeals is not None else []
    who += ["a predicted fate"] if algorithm.noise.drift_rate is not None else []
    if who and (min(weights) < 0 or sum(weights) > 1 + 1e-9):
        index = next((i for i, weight in enumerate(weights) if weight < 0), weights.index(max(weights)))
        yield (
            f"verifiers.{index}.weight",
            weights[index],
            f"expected weights >= 0 that add up to at most 1 with {who[0]}, which must know which end of the "
            "reward is right",
        )


def _evaluation(run: "RunConfig") -> Iterator[Problem]:
    evaluation, data = run.evaluation, run.data
    measured = evaluation.before or evaluation.after or evaluation.every_steps > 0
    if measured and data.held_out_fraction == 0 and not data.held_out_sources:
        yield (
            "data.held_out_fraction",
            0.0,
            "expected more than 0, or a held-out source, to evaluate on; set data.eval_path, or turn "
            "evaluation off (evaluation.before: false, evaluation.after: false, evaluation.every_steps: 0)",
        )
    if measured and not evaluation.greedy and evaluation.samples == 0:
        yield (
            "evaluation.samples",
            0,
            "expected at least 1 where evaluation.greedy is off: nothing would be measured",
        )
    if evaluation.ks and max(evaluation.ks) > evaluation.samples:
        yield (
            "evaluation.ks",
            list(evaluation.ks),
            f"expected at most evaluation.samples = {evaluation.samples}: pass@k needs k samples; raise "
            "evaluation.samples",
        )
    if evaluation.samples == 0:
        for name in ("temperature", "top_p", "top_k"):
            value = getattr(evaluation, name)
            if value != _default(type(evaluation), name):
                yield (
                    f"evaluation.{name}",
                    value,
                    "expected none where nothing is sampled; set evaluation.samples or leave it out",
                )
    if run.checkpoint.keep_best > 0:
        for name, every in (
            ("evaluation.every_steps", evaluation.every_steps),
            ("checkpoint.every_steps", run.checkpoint.every_steps),
        ):
            if every == 0:
                yield (
                    "checkpoint.keep_best",
                    run.checkpoint.keep_best,
                    f"expected {name} > 0 with it, or there is nothing to choose the best from",
                )


def _schedule(run: "RunConfig") -> Iterator[Problem]:
    optimizer, planned = run.optimizer, run.steps * run.updates_per_step * run.epochs_per_step
    if optimizer.warmup_steps >= planned and optimizer.warmup_steps > 0:
        yield (
            "optimizer.warmup_steps",
            optimizer.warmup_steps,
            f"expected fewer than the run's {planned} optimizer steps, or the learning rate never reaches "
            "its peak; shorten it or raise steps",
        )
    if optimizer.schedule == "constant" and optimizer.min_lr_fraction > 0:
        yield (
            "optimizer.min_lr_fraction",
            optimizer.min_lr_fraction,
            "expected none with a constant schedule; set optimizer.schedule to linear or cosine",
        )


def _default(section: Any, name: str) -> Any:
    return section.model_fields[name].default
