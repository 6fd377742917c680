"""The settings of one run, on top of everything."""

from typing import Literal

from pydantic import Field, model_validator

from peira.config.algorithm import AlgorithmConfig
from peira.config.data import DataConfig
from peira.config.engine import EngineConfig, LocalEngineConfig
from peira.config.model import ModelConfig
from peira.config.section import Section
from peira.config.verifier import JudgingConfig, VerifierConfig


class SamplingConfig(Section):
    """How completions are drawn while training. A model's own sampling defaults are never consulted."""

    temperature: float = Field(default=1.0, gt=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=0, ge=0)
    max_tokens: int = Field(default=256, ge=1)
    """New tokens per completion, the end token included."""
    stop_strings: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()


class OptimizerConfig(Section):
    """AdamW and its schedule."""

    lr: float = Field(default=1e-6, gt=0)
    """Peak learning rate."""
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = Field(default=1e-8, gt=0)
    weight_decay: float = Field(default=0.0, ge=0)
    """Decoupled; on matrices only."""
    warmup_steps: int = Field(default=0, ge=0)
    """Optimizer steps of linear warm-up from 0."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """After warm-up: stay, or fall to `min_lr_fraction` of the peak at the last planned step."""
    min_lr_fraction: float = Field(default=0.0, ge=0, le=1)
    max_grad_norm: float | None = Field(default=1.0, gt=0)
    """Clip the whole gradient to this norm; None never clips."""


class EvaluationConfig(Section):
    """Held-out measurement before, during and after training."""

    every_steps: int = Field(default=0, ge=0)
    """0: only before the first and after the last step."""
    before: bool = True
    after: bool = True
    max_questions: int | None = Field(default=None, ge=1)
    greedy: bool = True
    """One greedy completion per question."""
    samples: int = Field(default=0, ge=0)
    """Sampled completions per question, for pass@k."""
    ks: tuple[int, ...] = ()
    """The k of pass@k; powers of two up to half of `samples` when empty, and 1."""
    temperature: float = Field(default=1.0, gt=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=0, ge=0)
    confidence: float = Field(default=0.95, gt=0, lt=1)
    """Of the intervals over questions."""


class CheckpointConfig(Section):
    """What is kept to resume from and to ship."""

    every_steps: int = Field(default=10, ge=0)
    """0: only at the end and on interruption."""
    keep_last: int = Field(default=2, ge=1)
    keep_best: int = Field(default=0, ge=0)
    """Also keep this many with the best held-out accuracy."""


class StopConfig(Section):
    """Rules that end a run early, each with an exit code of its own."""

    collapse_patience: int = Field(default=0, ge=0)
    """Stop (exit 4) after this many steps on end in which no group had a signal; 0 never stops."""
    stage_timeout_s: float | None = Field(default=None, gt=0)
    """Stop (exit 7) when sampling, scoring or learning makes no progress for so long; None waits."""


class LoggingConfig(Section):
    """Who else is told. `metrics.jsonl` and the rollouts are always written."""

    tensorboard: bool = True
    wandb: str | None = None
    """Project name; needs the `wandb` extra."""
    trackio: str | None = None
    mlflow: str | None = None
    rollouts: bool = True
    """Keep every rollout on disk; the report's browser needs them."""


class RunConfig(Section):
    """One run. Two equal configurations on one commit give the same run."""

    name: str = "run"
    """The run's folder is `runs_dir/name`."""
    runs_dir: str = "runs"
    seed: int = Field(default=0, ge=0)
    steps: int = Field(default=100, ge=1)
    """Turns of the loop: sample, judge, learn."""
    prompts_per_step: int = Field(default=8, ge=1)
    """Tasks drawn for one step (P)."""
    group_size: int = Field(default=8, ge=2)
    """Rollouts per task (G); at least 2, since siblings are compared."""
    updates_per_step: int = Field(default=1, ge=1)
    """Optimizer steps on one step's rollouts; their groups are split evenly among the updates."""
    epochs_per_step: int = Field(default=1, ge=1)
    """Passes over one step's rollouts; each makes `updates_per_step` optimizer steps."""
    micro_batch_tokens: int = Field(default=8192, ge=1)
    """Tokens per backward pass; changes memory and speed, never the gradient."""
    model: ModelConfig
    engine: EngineConfig = LocalEngineConfig()
    data: DataConfig
    verifiers: tuple[VerifierConfig, ...] = Field(min_length=1)
    judging: JudgingConfig = JudgingConfig()
    sampling: SamplingConfig = SamplingConfig()
    algorithm: AlgorithmConfig = AlgorithmConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    stop: StopConfig = StopConfig()
    logging: LoggingConfig = LoggingConfig()

    @model_validator(mode="after")
    def _combinations(self) -> "RunConfig":
        if self.updates_per_step > self.prompts_per_step:
            raise ValueError(
                f"updates_per_step = {self.updates_per_step} but prompts_per_step = {self.prompts_per_step}: "
                "a group is never split between updates; use epochs_per_step for more passes"
            )
        if self.sampling.top_p < 1 or self.sampling.top_k > 0:
            raise ValueError(
                "sampling.top_p < 1 or sampling.top_k > 0 while training: the sampler would draw from "
                "another distribution than the learner scores, and every ratio would be biased by the kept mass; "
                "use top_p: 1 and top_k: 0 here, and filters in `evaluation` only"
            )
        names = [verifier.name or verifier.kind for verifier in self.verifiers]
        if len(set(names)) != len(names):
            raise ValueError(f"verifiers have the names {names}: give each its own `name`")
        if all(verifier.weight == 0 for verifier in self.verifiers):
            raise ValueError("every verifier has weight 0: nothing would be trained on")
        return self
