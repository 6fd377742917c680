"""From a configuration to what a run needs, and the plan in numbers."""

import asyncio
import json
import shutil
from dataclasses import replace

import pytest
import torch
from transformers import AutoTokenizer

from peira.build import doctor
from peira.build.doctor import check_disk, check_lengths, check_memory, workload
from peira.build.plan import arithmetic, plan
from peira.build.run import Prepared, check_folder, prepare
from peira.config.load import load_config
from peira.config.run import RunConfig
from peira.errors import ConfigError, DataError, ModelError, RunError
from peira.models.catalogue import resolve
from peira.trainer.preflight import Outcome

BASE = {"model": "tiny-arith", "data": "tasks.jsonl", "verifier": "numeric", "sampling": {"max_tokens": 16}}


def config(*overrides: str) -> RunConfig:
    return load_config(BASE, overrides, notice=lambda _: None)


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [{"prompt": f"{i} + {i} = ?", "answer": str(2 * i)} for i in range(50)]
    (tmp_path / "tasks.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path


@pytest.fixture
def prepared(place):
    with prepare(config()) as found:
        yield found


def test_appeals_get_a_verifier_of_their_own(place):
    run = config("algorithm.noise.appeals.verifier=math", "algorithm.noise.appeals.share=0.5")
    with prepare(run) as found:
        (channel,) = found.second_opinion.channels
        assert (channel.name, found.second_opinion.pool is found.verifiers.pool) == ("math", False)
    with prepare(config()) as found:
        assert found.second_opinion is None


def test_rates_of_a_source_that_is_not_there_are_refused(place):
    rates = "algorithm.noise.rates=[{source: task, false_negative_rate: 0.1}]"
    with pytest.raises(ConfigError, match=r"rates\.0\.source = 'task'.*did you mean"):
        prepare(config("algorithm=backward_noise", rates))


def test_the_batch_is_written_out():
    run = config(
        "prompts_per_step=6", "group_size=4", "updates_per_step=3", "epochs_per_step=2", "steps=10",
        "algorithm.dynamic_sampling=true", "algorithm.max_refills=2",
    )  # fmt: skip
    lines = dict(arithmetic(run, num_tasks=40, num_held_out=5))
    assert lines["batch"] == (
        "6 prompts x 4 rollouts = 24 rollouts per step, at most 24 x 16 = 384 new tokens; "
        "dynamic sampling draws up to 2 times more"
    )
    assert lines["updates"] == "3 x 2 passes = 6 optimizer steps per step, 10 steps = 60 in all"
    # 60 draws over 40 tasks = 1.5 passes
    assert lines["data"] == "10 steps x 6 prompts = 60 draws = 1.50 passes over 40 tasks; 5 held out"


def test_the_plan_names_model_device_verifiers_and_an_example(prepared):
    lines = plan(prepared)
    labels = [label for label, _ in lines]
    assert labels.index("model") == 0
    text = dict(reversed(lines))  # the first line of each label
    assert text["model"].startswith("tiny-arith, 0.5 M parameters, float32 on ")
    assert text["verifier"] == "numeric x 1"
    assert "+" in text["example"]
    assert text["folder"] == "runs/run"


def test_a_shadow_verifier_is_marked_as_such(place):
    with prepare(config("verifiers=[numeric, {kind: exact, weight: 0}]")) as found:
        shown = [text for label, text in plan(found) if label == "verifier"]
    assert shown == ["numeric x 1", "exact x 0 (shadow: logged, not trained on)"]


def test_no_weights_are_loaded_by_preparing(place, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("weights were loaded")

    monkeypatch.setattr("peira.build.engine.load_model", refuse)
    with prepare(config()) as found:
        assert found.sets.train.num_tasks + len(found.sets.held_out) == 50
        assert found.context_tokens == 512


def test_prompt_and_completion_share_the_context(place):
    with pytest.raises(ConfigError, match=r"sampling\.max_tokens = 512: expected fewer .* 512 tokens"):
        prepare(config("sampling.max_tokens=512"))
    with pytest.raises(ConfigError, match=r"data\.max_prompt_tokens = 500: expected at most 496"):
        prepare(config("data.max_prompt_tokens=500"))
    with pytest.raises(DataError):
        prepare(config("data.max_prompt_tokens=3"))


def test_cut_weight_files_are_found_before_anything_else_starts(place):
    import shutil

    from peira.models.catalogue import ASSETS

    shutil.copytree(ASSETS / "tiny-arith", place / "model")
    weights = place / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(ModelError, match="cut short"):
        prepare(config("model=./model"))


def test_a_model_without_a_chat_template_needs_raw_prompts(place):
    import shutil

    from peira.models.catalogue import ASSETS

    shutil.copytree(ASSETS / "tiny-arith", place / "model")
    (place / "model" / "chat_template.jinja").unlink()
    with pytest.raises(ModelError, match=r"data\.prompt_format=raw"):
        prepare(config("model=./model"))
    prepare(config("model=./model", "data.prompt_format=raw")).close()


def test_tasks_that_name_an_unknown_verifier_are_refused(place):
    (place / "tasks.jsonl").write_text(
        json.dumps({"prompt": "p", "answer": "1", "verifier": "numerics"}) + "\n"
    )
    with pytest.raises(DataError, match="numerics"):
        prepare(config("data.held_out_fraction=0", "evaluation.before=false", "evaluation.after=false"))


def test_a_folder_with_a_run_is_refused_unless_it_is_resumed(place):
    folder = place / "runs" / "run"
    folder.mkdir(parents=True)
    check_folder(config(), resume=False)
    (folder / "config.yaml").write_text("steps: 1\n")
    with pytest.raises(RunError, match=r"continue it with --resume"):
        check_folder(config(), resume=False)
    check_folder(config(), resume=True)


def test_lengths_are_added_up(prepared):
    # <|bos|> <|user|> "49 + 49 = ?" <|end|> <|assistant|>: 1 + 1 + 11 + 1 + 1 = 15 at most
    check = check_lengths(prepared)
    assert check.outcome is Outcome.PASSED
    assert check.detail == "longest prompt 15 + sampling.max_tokens 16 = 31 of 512 tokens"


def test_dropped_prompts_are_to_be_looked_at(place):
    # tasks 0 to 9 have one digit: 13 tokens; the other forty have 15
    with prepare(config("data.max_prompt_tokens=13", "data.long_prompts=drop")) as found:
        check = check_lengths(found)
    assert check.outcome is Outcome.WARNED
    assert "40 longer prompts were left out" in check.detail


def test_disk_holds_the_checkpoints_that_lie_there_at_once(prepared, monkeypatch):
    from peira.models.memory import num_parameters

    # keep_last 2 + keep_best 0 + the one being written; float32 weights and two moments: 12 bytes a parameter
    needed = 3 * 12 * num_parameters(prepared.model_config)
    for free, outcome in ((needed + 1, Outcome.PASSED), (needed - 1, Outcome.FAILED)):
        monkeypatch.setattr(
            doctor.shutil, "disk_usage", lambda _, free=free: type("Usage", (), {"free": free})()
        )
        assert check_disk(prepared).outcome is outcome


def test_memory_fails_only_when_what_is_certain_does_not_fit(prepared, monkeypatch):
    for free, outcome in ((10**12, Outcome.PASSED), (780 * 1024**2, Outcome.WARNED), (10**6, Outcome.FAILED)):
        monkeypatch.setattr(doctor, "free_bytes", lambda _, free=free: free)
        assert check_memory(prepared).outcome is outcome, free


def test_the_workload_is_the_configuration(place):
    run = config("prompts_per_step=3", "group_size=5", "engine.max_rows=7", "micro_batch_tokens=99")
    with prepare(run) as found:
        load = workload(found)
    assert (load.num_rollouts, load.group_size, load.max_rows) == (15, 5, 7)
    assert (load.prompt_tokens, load.max_tokens, load.micro_batch_tokens) == (15, 16, 99)
    assert load.num_references == 0


def test_a_kl_penalty_counts_a_reference(place):
    with prepare(config("algorithm.kl.coefficient=0.1")) as found:
        assert workload(found).num_references == 1


def test_narrow_weights_need_masters_on_disk(prepared: Prepared, monkeypatch):
    from peira.models.memory import num_parameters

    # bfloat16: 2 for weights, 8 for moments, 4 for masters
    needed = 3 * 14 * num_parameters(prepared.model_config)
    narrow = replace(prepared, dtype=torch.bfloat16)
    for free, outcome in ((needed + 1, Outcome.PASSED), (needed - 1, Outcome.FAILED)):
        monkeypatch.setattr(
            doctor.shutil, "disk_usage", lambda _, free=free: type("Usage", (), {"free": free})()
        )
        assert check_disk(narrow).outcome is outcome


def test_further_references_are_opened_for_training_and_must_read_the_same_ids(place):
    kl = "algorithm.kl={coefficient: 0.1, others: [{model: %s, coefficient: 0.2}]}"

    async def count(prepared: Prepared, training: bool) -> int:
        async with prepared.open_parts(training=training) as parts:
            return len(parts.other_references)

    with prepare(config(kl % "tiny-arith")) as found:
        assert workload(found).num_references == 2
        assert asyncio.run(count(found, training=True)) == 1
        assert asyncio.run(count(found, training=False)) == 0

    stranger = place / "stranger"
    shutil.copytree(resolve("tiny-arith"), stranger)
    backend = AutoTokenizer.from_pretrained(stranger)
    backend.add_tokens(["~odd~"])
    backend.save_pretrained(stranger)
    with pytest.raises(ConfigError, match=r"kl\.others\.0\.model\.name = .*stranger.*token '~odd~'"):
        prepare(config(kl % "stranger"))
