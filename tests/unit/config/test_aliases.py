"""Names from TRL, verl and OpenRLHF."""

import pytest

from peira.config.aliases import REFUSED, TRANSLATED
from peira.config.load import load_config
from peira.config.run import RunConfig
from peira.config.section import settings
from peira.errors import ConfigError

BASE = {"model": "some/model", "data": "tasks.jsonl", "verifier": "math"}
OURS = {path for path, _, _ in settings(RunConfig)}


def at(run: RunConfig, path: str) -> object:
    value: object = run
    for part in path.split("."):
        value = value[int(part)] if part.isdigit() else getattr(value, part)  # type: ignore[index]
    return value


TRL = {
    "num_generations": (4, "group_size", 4),
    "max_completion_length": (64, "sampling.max_tokens", 64),
    "max_prompt_length": (99, "data.max_prompt_tokens", 99),
    "beta": (0.04, "algorithm.kl.coefficient", 0.04),
    "loss_type": ("dr_grpo", "algorithm.average", "constant"),
    "scale_rewards": (
        True,
        "algorithm.scale",
        "sample_std",
    ),  # TRL divides by torch's std, which is the sample's
    "learning_rate": (1e-5, "optimizer.lr", 1e-5),
    "num_iterations": (2, "epochs_per_step", 2),
    "mask_truncated_completions": (True, "judging.truncated", "mask"),
    "lr_scheduler_type": ("constant_with_warmup", "optimizer.schedule", "constant"),
    "model_name_or_path": ("other/model", "model.name", "other/model"),
    "bf16": (True, "model.dtype", "bfloat16"),
    "temperature": (0.7, "sampling.temperature", 0.7),
    "save_steps": (7, "checkpoint.every_steps", 7),
    "max_steps": (12, "steps", 12),
}
VERL = {
    "actor_rollout_ref.model.path": ("other/model", "model.name", "other/model"),
    "actor_rollout_ref.rollout.n": (4, "group_size", 4),
    "actor_rollout_ref.rollout.top_k": (-1, "sampling.top_k", 0),
    "actor_rollout_ref.actor.optim.lr": (1e-5, "optimizer.lr", 1e-5),
    "actor_rollout_ref.actor.kl_loss_coef": (0.01, "algorithm.kl.coefficient", 0.01),
    "actor_rollout_ref.actor.loss_agg_mode": ("seq-mean-token-sum-norm", "algorithm.average", "constant"),
    "algorithm.norm_adv_by_std_in_grpo": (False, "algorithm.scale", "none"),
    "algorithm.adv_estimator": ("rloo", "algorithm.baseline", "leave_one_out"),
    "algorithm.filter_groups.enable": (True, "algorithm.dynamic_sampling", True),
    "data.train_batch_size": (16, "prompts_per_step", 16),
    "data.max_response_length": (64, "sampling.max_tokens", 64),
    "data.train_files": ("other.parquet", "data.path", "other.parquet"),
    "trainer.save_freq": (-1, "checkpoint.every_steps", 0),
    "trainer.total_training_steps": (33, "steps", 33),
}
OPENRLHF = {
    "pretrain": ("other/model", "model.name", "other/model"),
    "n_samples_per_prompt": (4, "group_size", 4),
    "rollout_batch_size": (16, "prompts_per_step", 16),
    "generate_max_len": (64, "sampling.max_tokens", 64),
    "actor_learning_rate": (1e-5, "optimizer.lr", 1e-5),
    "dynamic_filtering": (True, "algorithm.dynamic_sampling", True),
    "overlong_buffer_len": (16, "algorithm.overlong_buffer_tokens", 16),
    "apply_chat_template": (False, "data.prompt_format", "raw"),
}


@pytest.mark.parametrize("name", [*TRL, *VERL, *OPENRLHF])
def test_a_foreign_name_sets_ours_and_says_so(name):
    value, ours, expected = {**TRL, **VERL, **OPENRLHF}[name]
    said: list[str] = []
    run = load_config(BASE, [f"{name}={value}"], notice=said.append)
    assert at(run, ours) == expected
    assert len(said) == 1
    assert said[0].startswith(f"command line: {name}=")
    assert f"{ours}={expected}" in said[0]


def test_a_nested_tree_of_verl_is_read(tmp_path):
    path = tmp_path / "verl.yaml"
    path.write_text(
        "verifier: math\n"
        "data: {train_files: d.parquet, train_batch_size: 4, max_response_length: 32}\n"
        "actor_rollout_ref:\n"
        "  model: {path: m}\n"
        "  rollout: {n: 3, temperature: 0.9}\n"
        "  actor: {optim: {lr: 2e-6}, clip_ratio_low: 0.1, clip_ratio_high: 0.3}\n"
    )
    said: list[str] = []
    run = load_config(path, notice=said.append)
    assert (run.model.name, run.group_size, run.prompts_per_step) == ("m", 3, 4)
    assert (run.sampling.temperature, run.sampling.max_tokens) == (0.9, 32)
    assert (run.algorithm.clip_low, run.algorithm.clip_high, run.optimizer.lr) == (0.1, 0.3, 2e-6)
    assert len(said) == 9
    assert f"{path}:5: actor_rollout_ref.rollout.n=3 is read as group_size=3" in said


@pytest.mark.parametrize("order", [["epsilon=0.1", "epsilon_high=0.3"], ["epsilon_high=0.3", "epsilon=0.1"]])
def test_epsilon_bounds_both_sides_unless_the_upper_one_is_given(order):
    run = load_config(BASE, order, notice=lambda _: None)
    assert (run.algorithm.clip_low, run.algorithm.clip_high) == (0.1, 0.3)
    alone = load_config(BASE, ["epsilon=0.1"], notice=lambda _: None)
    assert (alone.algorithm.clip_low, alone.algorithm.clip_high) == (0.1, 0.1)


def test_names_are_understood_inside_the_section_they_belong_to():
    run = load_config(BASE, ["algorithm.beta=0.1", "optimizer.learning_rate=1e-4"], notice=lambda _: None)
    assert (run.algorithm.kl.coefficient, run.optimizer.lr) == (0.1, 1e-4)
    with pytest.raises(ConfigError, match=r"sampling\.beta = 0\.1: expected a setting of sampling"):
        load_config(BASE, ["sampling.beta=0.1"])


def test_our_name_and_a_foreign_one_for_it_are_given_twice(tmp_path):
    path = tmp_path / "r.yaml"
    path.write_text("model: m\ndata: d.jsonl\nverifier: math\ngroup_size: 4\nnum_generations: 8\n")
    with pytest.raises(ConfigError) as caught:
        load_config(path, notice=lambda _: None)
    assert str(caught.value) == (
        f"{path}:5: num_generations: expected group_size once, it is given already ({path}:4); keep one"
    )


@pytest.mark.parametrize("name", REFUSED)
def test_an_ambiguous_name_is_refused_with_the_way_out(name):
    with pytest.raises(ConfigError) as caught:
        load_config(BASE, [f"{name}=1"], notice=lambda _: None)
    line = str(caught.value).splitlines()[0]
    assert line.startswith(f"command line: {name} = ")
    assert line.endswith(REFUSED[name])


@pytest.mark.parametrize(
    ("override", "choices"),
    [
        ("loss_type=sapo", "grpo, dr_grpo, dapo, bnpo"),
        ("scale_rewards=batch", "True, False, group, none"),
        ("algorithm.adv_estimator=gae", "grpo, rloo"),
        ("lr_scheduler_type=polynomial", "constant, constant_with_warmup, linear, cosine"),
    ],
)
def test_a_value_without_a_meaning_here_lists_those_that_have_one(override, choices):
    with pytest.raises(ConfigError, match=f"expected one of {choices}"):
        load_config(BASE, [override], notice=lambda _: None)


def test_every_alias_leads_to_a_setting_that_exists():
    for name, rule in TRANSLATED.items():
        targets = set()
        for value in (1, "x", True, [0.1, 0.2], "grpo", "linear", "k3", "token-mean"):
            try:
                targets |= {ours for ours, _, _ in rule(value)}
            except (ValueError, TypeError):
                continue
        assert targets, name
        assert targets <= OURS, name


def test_no_alias_hides_one_of_our_own_names():
    assert not OURS & (TRANSLATED.keys() | REFUSED.keys())
