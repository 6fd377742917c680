"""Combinations that would be ignored or could not work, one run that breaks each rule."""

import pytest
from pydantic import ValidationError

from peira.config.load import load_config
from peira.config.run import RunConfig
from peira.errors import ConfigError

BASE = {"model": "some/model", "data": "tasks.jsonl", "verifier": "math"}

VOID = [
    # overrides; the setting that is named; what its reason says
    (["updates_per_step=9"], "updates_per_step", "a group is never split"),
    (["verifiers=[math, math]"], "verifiers.1.name", "no other verifier has"),
    (["verifiers.0.weight=0"], "verifiers.0.weight", "nothing would be trained on"),
    (
        ["data.path=null", "data.sources=[{path: a.jsonl, verifier: mth}]"],
        "data.sources.0.verifier",
        "did you mean math?",
    ),
    (
        ["judging.max_unjudged_fraction=1", "judging.patience_steps=3"],
        "judging.patience_steps",
        "no rule can fire",
    ),
    (["sampling.top_p=0.9"], "sampling.top_p", "biased by the kept mass"),
    (["sampling.top_k=50"], "sampling.top_k", "biased by the kept mass"),
    (["algorithm=rloo", "algorithm.scale=sample_std"], "algorithm.scale", "leave_one_out"),
    (["algorithm.scale=none", "algorithm.std_eps=0.1"], "algorithm.std_eps", "no std is divided by"),
    (["algorithm.dynamic_sampling=true", "algorithm.max_refills=0"], "algorithm.max_refills", "draws again"),
    (
        ["algorithm.dynamic_sampling=false", "algorithm.max_refills=9"],
        "algorithm.max_refills",
        "nothing is drawn again",
    ),
    (
        ["algorithm.overlong_buffer_tokens=256"],
        "algorithm.overlong_buffer_tokens",
        "every completion would be penalised",
    ),
    (
        ["algorithm.overlong_buffer_tokens=9", "algorithm.overlong_penalty=0"],
        "algorithm.overlong_penalty",
        "more than 0",
    ),
    (["algorithm.overlong_penalty=0.5"], "algorithm.overlong_penalty", "without a buffer"),
    (
        ["algorithm.kl.coefficient=0.1", "algorithm.kl.estimator=k1"],
        "algorithm.kl.estimator",
        "gradient of k1 there is 0",
    ),
    (["algorithm.kl.estimator=k2"], "algorithm.kl.estimator", "penalty is off"),
    (
        ["algorithm.process.verifier=mth"],
        "algorithm.process.verifier",
        "did you mean math?",
    ),
    (["data.held_out_fraction=0"], "data.held_out_fraction", "to evaluate on"),
    (["evaluation.greedy=false"], "evaluation.samples", "nothing would be measured"),
    (["evaluation.samples=4", "evaluation.ks=[1, 8]"], "evaluation.ks", "pass@k needs k samples"),
    (["evaluation.ks=[1]"], "evaluation.ks", "pass@k needs k samples"),
    (["evaluation.temperature=0.6"], "evaluation.temperature", "nothing is sampled"),
    (["evaluation.top_p=0.9"], "evaluation.top_p", "nothing is sampled"),
    (["evaluation.top_k=20"], "evaluation.top_k", "nothing is sampled"),
    (["checkpoint.keep_best=1"], "checkpoint.keep_best", "evaluation.every_steps > 0"),
    (
        ["checkpoint.keep_best=1", "evaluation.every_steps=5", "checkpoint.every_steps=0"],
        "checkpoint.keep_best",
        "checkpoint.every_steps > 0",
    ),
    (["optimizer.warmup_steps=100"], "optimizer.warmup_steps", "100 optimizer steps"),
    (["optimizer.min_lr_fraction=0.1"], "optimizer.min_lr_fraction", "constant schedule"),
]

SOUND = [
    ["updates_per_step=8"],
    ["verifiers=[math, {kind: math, name: again, weight: 0}]"],
    ["judging.max_unjudged_fraction=1"],
    ["algorithm=rloo"],
    ["algorithm=dapo", "algorithm.max_refills=9"],
    ["algorithm.overlong_buffer_tokens=255"],
    ["algorithm.kl.coefficient=0.1", "algorithm.kl.estimator=k2"],
    ["data.held_out_fraction=0", "evaluation.before=false", "evaluation.after=false"],
    ["data.held_out_fraction=0", "data.eval_path=held_out.jsonl"],
    ["evaluation.greedy=false", "evaluation.samples=8", "evaluation.ks=[1, 8]", "evaluation.top_p=0.95"],
    ["checkpoint.keep_best=1", "evaluation.every_steps=5"],
    # 100 steps x 2 updates x 2 passes = 400 optimizer steps: 399 of warm-up just fit
    ["updates_per_step=2", "epochs_per_step=2", "optimizer.warmup_steps=399"],
    ["optimizer.schedule=cosine", "optimizer.min_lr_fraction=0.1"],
]


@pytest.mark.parametrize(("overrides", "setting", "reason"), VOID, ids=lambda value: str(value)[:60])
def test_void_combinations_are_refused_with_the_reason(overrides, setting, reason):
    with pytest.raises(ConfigError) as caught:
        load_config(BASE, overrides, notice=lambda _: None)
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"command line: {setting} = ") or line.startswith(f"settings: {setting} = ")
    assert ": expected " in line
    assert reason in line


@pytest.mark.parametrize("overrides", SOUND, ids=str)
def test_their_sound_neighbours_are_accepted(overrides):
    load_config(BASE, overrides, notice=lambda _: None)


def test_several_void_combinations_are_said_at_once():
    with pytest.raises(ConfigError) as caught:
        load_config(BASE, ["sampling.top_p=0.5", "evaluation.ks=[2]", "optimizer.min_lr_fraction=0.5"])
    assert len(str(caught.value).splitlines()) == 3


def test_python_users_meet_the_same_rules():
    with pytest.raises(ValidationError, match="a group is never split"):
        RunConfig.model_validate(
            {"model": "m", "data": "d.jsonl", "verifiers": ["math"], "updates_per_step": 9}
        )


def test_the_default_run_is_sound():
    load_config(BASE)
