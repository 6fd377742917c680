"""Names that people bring from TRL, verl and OpenRLHF, and what they are here.

A foreign name with one meaning is translated and announced; one whose meaning depends on other settings, or
that peira does not have, is refused with the name to use. Our own names are never looked up here.
"""

from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any

from peira.errors import ConfigError

Assignment = tuple[str, Any, bool]
"""(our setting, its value, whether another setting given outright overrules it)."""
_Rule = Callable[[Any], list[Assignment]]


def _to(path: str, values: Mapping[Any, Any] | None = None) -> _Rule:
    """The same value under our name, or what `values` makes of it."""

    def rule(value: Any) -> list[Assignment]:
        if values is None:
            return [(path, value, False)]
        key = value.lower() if isinstance(value, str) else value
        if key not in values:
            raise ValueError(f"expected one of {', '.join(map(str, values))}; here it is {path}")
        return [(path, values[key], False)]

    return rule


def _clip(value: Any) -> list[Assignment]:
    return [("algorithm.clip_low", value, False), ("algorithm.clip_high", value, True)]


def _clip_pair(value: Any) -> list[Assignment]:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError("expected two numbers, as in [0.2, 0.28], for algorithm.clip_low and clip_high")
    return [("algorithm.clip_low", value[0], False), ("algorithm.clip_high", value[1], False)]


def _folder(value: Any) -> list[Assignment]:
    path = PurePath(str(value))
    return [("runs_dir", str(path.parent), False), ("name", path.name, False)]


def _dtype(name: str) -> _Rule:
    """A switch for one precision; off leaves the choice to model.dtype."""
    return lambda value: [("model.dtype", name, False)] if value else []


def _top_k(value: Any) -> list[Assignment]:
    return [("sampling.top_k", 0 if value in (None, -1) else value, False)]


def _every(path: str) -> _Rule:
    return lambda value: [(path, 0 if value == -1 else value, False)]


def _files(path: str) -> _Rule:
    def rule(value: Any) -> list[Assignment]:
        files = value if isinstance(value, list) else [value]
        many = path.replace("path", "sources")
        return [(path, files[0], False) if len(files) == 1 else (many, files, False)]

    return rule


_AVERAGE = {
    "grpo": "sequence_mean",
    "dr_grpo": "constant",
    "dapo": "token_mean",
    "bnpo": "token_mean",
}
_SCALE = {True: "sample_std", False: "none", "group": "sample_std", "none": "none"}

TRANSLATED: dict[str, _Rule] = {
    # TRL
    "num_generations": _to("group_size"),
    "max_completion_length": _to("sampling.max_tokens"),
    "max_prompt_length": _to("data.max_prompt_tokens"),
    "beta": _to("algorithm.kl.coefficient"),
    "epsilon": _clip,
    "epsilon_high": _to("algorithm.clip_high"),
    "loss_type": _to("algorithm.average", _AVERAGE),
    "scale_rewards": _to("algorithm.scale", _SCALE),
    "num_iterations": _to("epochs_per_step"),
    "mask_truncated_completions": _to("judging.truncated", {True: "mask", False: "score"}),
    "learning_rate": _to("optimizer.lr"),
    "weight_decay": _to("optimizer.weight_decay"),
    "adam_epsilon": _to("optimizer.eps"),
    "max_grad_norm": _to("optimizer.max_grad_norm"),
    "warmup_steps": _to("optimizer.warmup_steps"),
    "lr_scheduler_type": _to(
        "optimizer.schedule",
        {"constant": "constant", "constant_with_warmup": "constant", "linear": "linear", "cosine": "cosine"},
    ),
    "model_name_or_path": _to("model.name"),
    "model_revision": _to("model.revision"),
    "dataset_name": _to("data.path"),
    "output_dir": _folder,
    "save_steps": _to("checkpoint.every_steps"),
    "save_total_limit": _to("checkpoint.keep_last"),
    "eval_steps": _to("evaluation.every_steps"),
    "max_steps": _to("steps"),
    "gradient_checkpointing": _to("engine.gradient_checkpointing"),
    "bf16": _dtype("bfloat16"),
    "fp16": _dtype("float16"),
    "temperature": _to("sampling.temperature"),
    "top_p": _to("sampling.top_p"),
    "top_k": _top_k,
    "run_name": _to("name"),
    # verl
    "actor_rollout_ref.model.path": _to("model.name"),
    "actor_rollout_ref.model.enable_gradient_checkpointing": _to("engine.gradient_checkpointing"),
    "actor_rollout_ref.rollout.n": _to("group_size"),
    "actor_rollout_ref.rollout.temperature": _to("sampling.temperature"),
    "actor_rollout_ref.rollout.top_p": _to("sampling.top_p"),
    "actor_rollout_ref.rollout.top_k": _top_k,
    "actor_rollout_ref.actor.optim.lr": _to("optimizer.lr"),
    "actor_rollout_ref.actor.optim.weight_decay": _to("optimizer.weight_decay"),
    "actor_rollout_ref.actor.optim.lr_warmup_steps": _every("optimizer.warmup_steps"),
    "actor_rollout_ref.actor.grad_clip": _to("optimizer.max_grad_norm"),
    "actor_rollout_ref.actor.clip_ratio": _clip,
    "actor_rollout_ref.actor.clip_ratio_low": _to("algorithm.clip_low"),
    "actor_rollout_ref.actor.clip_ratio_high": _to("algorithm.clip_high"),
    "actor_rollout_ref.actor.kl_loss_coef": _to("algorithm.kl.coefficient"),
    "actor_rollout_ref.actor.kl_loss_type": _to(
        "algorithm.kl.estimator",
        {"low_var_kl": "k3", "k3": "k3", "mse": "k2", "k2": "k2", "kl": "k1", "k1": "k1"},
    ),
    "actor_rollout_ref.actor.loss_agg_mode": _to(
        "algorithm.average",
        {
            "token-mean": "token_mean",
            "seq-mean-token-mean": "sequence_mean",
            "seq-mean-token-sum": "sequence_sum",
            "seq-mean-token-sum-norm": "constant",
        },
    ),
    "actor_rollout_ref.actor.ppo_epochs": _to("epochs_per_step"),
    "actor_rollout_ref.actor.ppo_max_token_len_per_gpu": _to("micro_batch_tokens"),
    "algorithm.norm_adv_by_std_in_grpo": _to("algorithm.scale", {True: "sample_std", False: "none"}),
    "algorithm.adv_estimator": _to("algorithm.baseline", {"grpo": "group_mean", "rloo": "leave_one_out"}),
    "algorithm.filter_groups.enable": _to("algorithm.dynamic_sampling"),
    "algorithm.filter_groups.max_num_gen_batches": _to("algorithm.max_refills"),
    "data.train_files": _files("data.path"),
    "data.val_files": _files("data.eval_path"),
    "data.train_batch_size": _to("prompts_per_step"),
    "data.max_prompt_length": _to("data.max_prompt_tokens"),
    "data.max_response_length": _to("sampling.max_tokens"),
    "trainer.total_training_steps": _to("steps"),
    "trainer.save_freq": _every("checkpoint.every_steps"),
    "trainer.test_freq": _every("evaluation.every_steps"),
    "trainer.experiment_name": _to("name"),
    "trainer.val_before_train": _to("evaluation.before"),
    # OpenRLHF
    "pretrain": _to("model.name"),
    "n_samples_per_prompt": _to("group_size"),
    "rollout_batch_size": _to("prompts_per_step"),
    "generate_max_len": _to("sampling.max_tokens"),
    "prompt_max_len": _to("data.max_prompt_tokens"),
    "actor_learning_rate": _to("optimizer.lr"),
    "eps_clip": _clip,
    "eps_clip_low_high": _clip_pair,
    "prompt_data": _to("data.path"),
    "eval_dataset": _to("data.eval_path"),
    "dynamic_filtering": _to("algorithm.dynamic_sampling"),
    "overlong_buffer_len": _to("algorithm.overlong_buffer_tokens"),
    "overlong_penalty_factor": _to("algorithm.overlong_penalty"),
    "apply_chat_template": _to("data.prompt_format", {True: "chat", False: "raw"}),
    "max_new_tokens": _to("sampling.max_tokens"),
}

_BATCH = (
    "prompts_per_step x group_size rollouts are drawn per step, updates_per_step optimizer steps are taken "
    "on them, and micro_batch_tokens sets the memory; say these"
)
_ALWAYS = "metrics of every step are always written; leave it out"
_KL_REWARD = "peira puts the KL penalty into the loss: set algorithm.kl.coefficient there"
_EPOCHS = "a run is counted in steps: set steps (the plan prints how often the data is passed)"
_VERIFIERS = "say who judges under verifiers, as in verifier=math or verifier=my_reward.py:score"

REFUSED: dict[str, str] = {
    # TRL
    "per_device_train_batch_size": f"its meaning depends on devices and accumulation; {_BATCH}",
    "per_device_eval_batch_size": "evaluation needs no batch size; engine.max_rows limits decoding memory",
    "gradient_accumulation_steps": f"cutting a batch never changes its gradient here; {_BATCH}",
    "generation_batch_size": f"in TRL it counts completions; {_BATCH}",
    "steps_per_generation": f"in TRL it counts micro-batches; {_BATCH}",
    "num_train_epochs": _EPOCHS,
    "delta": "two-sided clipping is not there; leave it out",
    "warmup_ratio": "say it in steps: optimizer.warmup_steps",
    "logging_steps": _ALWAYS,
    "log_completions": "rollouts are always written (logging.rollouts); leave it out",
    "report_to": "name the project under logging: logging.wandb, logging.trackio, logging.mlflow",
    "reward_funcs": _VERIFIERS,
    "reward_weights": "each verifier has its own weight: verifiers.0.weight=...",
    "ref_model": "the reference is the model before training; algorithm.kl.coefficient switches it on",
    "use_vllm": "the engine is chosen by engine.kind",
    "adam_beta1": "say both: optimizer.betas=[0.9, 0.999]",
    "adam_beta2": "say both: optimizer.betas=[0.9, 0.999]",
    "dataset_config": "say it with the source: data.sources=[{path: ..., subset: ...}]",
    # verl
    "actor_rollout_ref.actor.ppo_mini_batch_size": (
        "it counts prompts per optimizer step: set updates_per_step = prompts_per_step / that"
    ),
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": "memory is set by micro_batch_tokens, in tokens",
    "actor_rollout_ref.actor.ppo_micro_batch_size": "memory is set by micro_batch_tokens, in tokens",
    "actor_rollout_ref.actor.use_kl_loss": "algorithm.kl.coefficient > 0 switches the KL loss on, 0 off",
    "actor_rollout_ref.rollout.name": "the engine is chosen by engine.kind",
    "algorithm.use_kl_in_reward": _KL_REWARD,
    "algorithm.kl_ctrl.kl_coef": _KL_REWARD,
    "trainer.total_epochs": _EPOCHS,
    "trainer.project_name": "name the project under logging: logging.wandb, logging.trackio, logging.mlflow",
    "trainer.logger": "name the project under logging: logging.wandb, logging.trackio, logging.mlflow",
    "trainer.n_gpus_per_node": "the engine decides where it runs: see engine",
    "trainer.nnodes": "the engine decides where it runs: see engine",
    "trainer.default_local_dir": "a run's folder is runs_dir/name: set those",
    "custom_reward_function.path": _VERIFIERS,
    "custom_reward_function.name": _VERIFIERS,
    # OpenRLHF
    "train_batch_size": (
        "in OpenRLHF it counts rollouts per optimizer step: set updates_per_step = "
        "prompts_per_step * group_size / that; in verl it counts prompts: set prompts_per_step"
    ),
    "micro_train_batch_size": "memory is set by micro_batch_tokens, in tokens",
    "micro_rollout_batch_size": "memory of sampling is set by engine.max_rows, in completions",
    "init_kl_coef": _KL_REWARD,
    "advantage_estimator": "choose a preset: algorithm=grpo, dr_grpo, dapo or rloo",
    "num_episodes": _EPOCHS,
    "max_epochs": "passes over one step's rollouts are epochs_per_step; the run's length is steps",
    "input_key": "say it with the source: data.sources=[{path: ..., columns: {prompt: ...}}]",
    "label_key": "say it with the source: data.sources=[{path: ..., columns: {answer: ...}}]",
    "lr_warmup_ratio": "say it in steps: optimizer.warmup_steps",
    "remote_rm_url": _VERIFIERS,
    # of nobody in particular
    "batch_size": _BATCH,
    "epochs": _EPOCHS,
    "num_epochs": _EPOCHS,
    "samples_per_prompt": "set group_size",
}


def translate(path: str, value: Any, place: str) -> list[Assignment] | None:
    """What a foreign name means here; None when it is nobody's.

    The last part of a path also counts when the setting it stands for lies in the same section, so that
    `algorithm.beta` and `optimizer.learning_rate` are understood.

    Raises:
        ConfigError: the name is known and has no single meaning here, or its value has none.
    """
    section, _, name = path.rpartition(".")
    if path in REFUSED:
        raise ConfigError(f"{place}: {path} = {value!r}: expected peira's words for it; {REFUSED[path]}")
    rule = TRANSLATED.get(path)
    if rule is None and section:
        rule = TRANSLATED.get(name)
        try:
            if rule is None or not all(ours.startswith(f"{section}.") for ours, _, _ in rule(value)):
                return None
        except ValueError:
            pass
    if rule is None:
        return None
    try:
        return rule(value)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{place}: {path} = {value!r}: {error}") from None
