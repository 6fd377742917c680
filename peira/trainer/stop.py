"""Rules that end a run early, with what was seen and what to try."""

from collections import Counter

from peira.config.run import RunConfig
from peira.errors import ExitCode, StopRun
from peira.trainer.state import TrainerState
from peira.trainer.step import StepResult, collapse_shares

_COLLAPSE_ADVICE = {
    "all_right": "the tasks are too easy by now: add harder ones",
    "all_wrong": "the tasks are too hard, or the verifier cannot read the answers: try easier tasks, a "
    "larger group_size, and `peira verify` on one of the rollouts",
    "unjudged": "the verifier does not judge: see verifier/* in the metrics",
    "truncated": "completions are cut off: raise sampling.max_tokens",
    "duplicate": "the policy has lost its variety: lower optimizer.lr, or restart from an earlier checkpoint",
}


def stop_rule(config: RunConfig, state: TrainerState, result: StepResult) -> StopRun | None:
    """The reason to stop after this step, if there is one."""
    if state.unjudged_steps >= config.judging.patience_steps:
        return StopRun(_unjudged(config, state, result), ExitCode.VERIFIER)
    if verifier_is_blind(config, state):
        return StopRun(_blind(config, state), ExitCode.VERIFIER)
    patience = config.stop.collapse_patience
    if patience and state.dead_steps >= patience:
        return StopRun(_collapsed(state, result), ExitCode.COLLAPSE)
    return None


def verifier_is_blind(config: RunConfig, state: TrainerState) -> bool:
    """Whether enough appeals were heard, and J's interval reaches 0."""
    appeals, seen = config.algorithm.noise.appeals, state.algorithm
    if appeals is None or appeals.min_appeals == 0:
        return False
    heard = seen.get("noise/appeals_so_far", 0.0) >= appeals.min_appeals
    return heard and seen.get("noise/informedness_low", 1.0) <= 0


def _blind(config: RunConfig, state: TrainerState) -> str:
    seen = state.algorithm
    return (
        f"step {state.step}: the verifier has not been shown to tell right from wrong: J = 1 - false "
        f"positive rate - false negative rate = {seen['noise/informedness']:.2f}, interval "
        f"{seen['noise/informedness_low']:.2f} to {seen['noise/informedness_high']:.2f}, after "
        f"{seen['noise/appeals_so_far']:.0f} appeals; at J = 0 training drifts, below it unlearns: look at "
        "rejected answers with `peira verify --audit`, repair the verifier, then continue with --resume; "
        "algorithm.noise.appeals.min_appeals: 0 goes on regardless"
    )


def _collapsed(state: TrainerState, result: StepResult) -> str:
    shares = {kind: share for kind, share in collapse_shares(result.kinds).items() if share > 0}
    if result.stale.all():
        return (
            f"step {state.step}: {state.dead_steps} steps on end without a signal (stop.collapse_patience); "
            "every rollout of the last was drawn by weights older than algorithm.mismatch.max_lag allows: "
            "raise it, or make the sampler follow faster"
        )
    worst = max(shares, key=lambda kind: shares[kind])
    seen = ", ".join(f"{kind} {share:.0%}" for kind, share in sorted(shares.items(), key=lambda kv: -kv[1]))
    return (
        f"step {state.step}: {state.dead_steps} steps on end without a signal "
        f"(stop.collapse_patience); groups of the last: {seen}; "
        f"{_COLLAPSE_ADVICE.get(worst, 'every advantage was 0')}"
    )


def _unjudged(config: RunConfig, state: TrainerState, result: StepResult) -> str:
    verdicts = [
        (channel, verdict)
        for group in result.groups
        for member in group.rollouts
        for channel, verdict in member.verdicts.items()
        if not verdict.judged
    ]
    counts = Counter(f"{channel}: {verdict.status.value}" for channel, verdict in verdicts)
    example = next((verdict.detail for _, verdict in verdicts if verdict.detail), "no detail")
    return (
        f"step {state.step}: more than {config.judging.max_unjudged_fraction:.0%} of the rollouts could "
        f"not be judged (judging.max_unjudged_fraction): {dict(counts)}; for example: {example}; "
        "nothing was trained on them: repair the verifier, then continue with --resume"
    )
