"""The settings of one run, on top of everything."""

import re
from typing import Annotated, Literal

from pydantic import Field, model_validator

from peira.config.algorithm import AlgorithmConfig
from peira.config.combinations import contradictions
from peira.config.data import DataConfig
from peira.config.engine import EngineConfig, LocalEngineConfig
from peira.config.model import ModelConfig
from peira.config.section import Section
from peira.config.verifier import JudgingConfig, VerifierConfig


class SamplingConfig(Section):
    """How completions are drawn while training. A model's own sampling defaults are never consulted."""

    temperature: float = Field(default=1.0, gt=0)
    """Logits are divided by it; the learner scores at the same temperature."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """1 while training: filtered sampling biases every ratio."""
    top_k: int = Field(default=0, ge=0)
    """0 (the whole vocabulary) while training, for the same reason."""
    max_tokens: int = Field(default=256, ge=1)
    """New tokens per completion, the end token included."""
    stop_strings: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """A completion ends where its text reaches one of these; the text is kept."""
    stop_token_ids: tuple[int, ...] = ()
    """Ids that end a completion, beside the model's own end tokens."""


class OptimizerConfig(Section):
    """AdamW and its schedule."""

    lr: float = Field(default=1e-6, gt=0)
    """Peak learning rate."""
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.999)
    """Decay of the running mean of gradients, and of their squares."""
    eps: float = Field(default=1e-8, gt=0)
    """Added to the root of the running mean of squares."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Decoupled; on matrices only."""
    warmup_steps: int = Field(default=0, ge=0)
    """Optimizer steps of linear warm-up from 0."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """After warm-up: stay, or fall to `min_lr_fraction` of the peak at the last planned step."""
    min_lr_fraction: float = Field(default=0.0, ge=0, le=1)
    """Where a falling schedule ends, as a share of `lr`."""
    max_grad_norm: float | None = Field(default=1.0, gt=0)
    """Clip the whole gradient to this norm; None never clips."""


class EvaluationConfig(Section):
    """Held-out measurement before, during and after training."""

    every_steps: int = Field(default=0, ge=0)
    """0: only before the first and after the last step."""
    before: bool = True
    """Measure the untouched model first."""
    after: bool = True
    """Measure once more behind the last step."""
    max_questions: int | None = Field(default=None, ge=1)
    """Use only this many held-out tasks, the same ones each time; None means all."""
    greedy: bool = True
    """One greedy completion per question."""
    samples: int = Field(default=0, ge=0)
    """Sampled completions per question, for pass@k."""
    ks: tuple[Annotated[int, Field(ge=1)], ...] = ()
    """The k of pass@k; powers of two up to half of `samples` when empty, and 1."""
    temperature: float = Field(default=1.0, gt=0)
    """Of the sampled completions."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Sample from the smallest set of tokens with at least this probability."""
    top_k: int = Field(default=0, ge=0)
    """Sample from this many most probable tokens; 0 means all."""
    confidence: float = Field(default=0.95, gt=0, lt=1)
    """Of the intervals over questions."""


class CheckpointConfig(Section):
    """What is kept to resume from and to ship."""

    every_steps: int = Field(default=10, ge=0)
    """0: only at the end and on interruption."""
    keep_last: int = Field(default=2, ge=1)
    """The newest this many stay."""
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
    """Event files in the run folder."""
    wandb: str | None = None
    """Project name; needs the `wandb` extra."""
    trackio: str | None = None
    """Project name; needs the `trackio` extra."""
    mlflow: str | None = None
    """Experiment name; needs the `mlflow` extra."""
    rollouts: bool = True
    """Keep every rollout on disk; the report's browser needs them."""
    habits: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$")], str] = Field(default_factory=dict)
    """Name -> regular expression, searched in every training completion (a dot matches line ends too); the
    share that has it is drawn, so that a habit being amplified is seen. Nothing is trained on it."""

    @model_validator(mode="after")
    def _habits_are_patterns(self) -> "LoggingConfig":
        for name, pattern in self.habits.items():
            try:
                re.compile(pattern, re.DOTALL)
            except re.error as error:
                raise ValueError(
                    f"habits.{name} = {pattern!r}: expected a regular expression ({error})"
                ) from error
        return self


class RunConfig(Section):
    """One run. Two equal configurations on one commit give the same run."""

    name: str = Field(default="run", min_length=1)
    """The run's folder is `runs_dir/name`; a recipe file's own name when left out."""
    runs_dir: str = Field(default="runs", min_length=1)
    """Where run folders are made."""
    seed: int = Field(default=0, ge=0)
    """Of data order and sampling; with one process on a CPU it fixes the whole run."""
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
    """What is trained."""
    engine: EngineConfig = LocalEngineConfig()
    """What samples and learns."""
    data: DataConfig
    """Tasks."""
    verifiers: tuple[VerifierConfig, ...] = Field(min_length=1)
    """Who judges; `verifier: X` is short for one."""
    judging: JudgingConfig = JudgingConfig()
    """How they are run."""
    sampling: SamplingConfig = SamplingConfig()
    """How completions are drawn."""
    algorithm: AlgorithmConfig = AlgorithmConfig()
    """How rewards become a gradient."""
    optimizer: OptimizerConfig = OptimizerConfig()
    """How the gradient moves the weights."""
    evaluation: EvaluationConfig = EvaluationConfig()
    """When and how held-out tasks are measured."""
    checkpoint: CheckpointConfig = CheckpointConfig()
    """What is kept."""
    stop: StopConfig = StopConfig()
    """What ends a run early."""
    logging: LoggingConfig = LoggingConfig()
    """Who is told."""

    @model_validator(mode="after")
    def _combinations(self) -> "RunConfig":
        problems = [f"{key} = {value!r}: {text}" for key, value, text in contradictions(self)]
        if problems:
            raise ValueError("\n".join(problems))
        return self
