"""Tiny models: made the same by the same recipe, and as good and as bad as they are said to be."""

import hashlib
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from peira.cli.main import main
from peira.config.pretrain import load_pretrain
from peira.errors import ConfigError, ModelError
from peira.models.catalogue import resolve
from peira.models.hf import load_model
from peira.models.tiny import (
    TinyShape,
    Training,
    _collate,
    character_tokenizer,
    completions,
    ends_with_answer,
    pretrain,
)
from peira.models.tokenizer import load_tokenizer
from peira.models.traces import Problem, Trace, TraceSpec, heldout_problems

RECIPE = Path(__file__).parents[3] / "recipes" / "pretrain" / "tiny-arith.yaml"
MINIATURE = """
name: miniature
seed: 3
threads: 1
model: {hidden_size: 32, num_layers: 1, num_heads: 2, num_kv_heads: 1, intermediate_size: 32, max_length: 64}
traces:
  - {kind: addition, min_length: 1, max_length: 1, habits: {direct: 1}, wrong_share: 0.2}
training: {steps: 30, batch_size: 16, warmup_steps: 3}
questions: 4
samples: 2
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "miniature.yaml"
    path.write_text(MINIATURE)
    return path


def weights_hash(folder: Path) -> str:
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def command(recipe: Path, out: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    arguments = [
        sys.executable,
        "-m",
        "peira.cli.main",
        "pretrain",
        str(recipe),
        *overrides,
        "--out",
        str(out),
    ]
    return subprocess.run(arguments, capture_output=True, text=True, check=False)


def test_a_byte_is_a_token_and_special_tokens_are_never_made_of_text() -> None:
    tokenizer = character_tokenizer()
    assert len(tokenizer) == 6 + 256
    ids = [tokenizer.encode(bytes([b]).decode("latin-1"), add_special_tokens=False) for b in range(128)]
    assert all(len(one) == 1 and one[0] >= 6 for one in ids)
    assert len({one[0] for one in ids}) == 128


def test_only_the_completion_and_its_end_are_learnt() -> None:
    tokenizer = character_tokenizer()
    problem = Problem(kind="copy", prompt="ab", answer="ab")
    traces = [
        Trace(problem=problem, habit="direct", error="", text=text, answer="ab") for text in ("x", "xyz")
    ]
    ids, labels = _collate(tokenizer, traces)
    # <|bos|><|user|>ab<|end|><|assistant|> are 6 tokens; then x <|end|>, or x y z <|end|>
    assert ids.shape == (2, 10)
    assert labels[0].tolist() == [-100] * 6 + [ids[0, 6].item(), 2] + [-100] * 2
    assert labels[1, 6:].tolist() == [*ids[1, 6:9].tolist(), 2]
    assert ids[0, 8:].tolist() == [0, 0]


def test_the_learning_rate_rises_and_falls() -> None:
    training = Training(steps=100, lr=1.0, warmup_steps=10)
    assert training.lr_at(0) == pytest.approx(0.1)
    assert training.lr_at(9) == pytest.approx(1.0)
    assert training.lr_at(55) == pytest.approx(0.55)  # half way down a cosine from 1 to 0.1
    assert training.lr_at(100) == pytest.approx(0.1)


def test_an_answer_counts_only_at_the_end_and_whole() -> None:
    sums = TraceSpec(kind="addition")
    assert ends_with_answer("7+8=15 so 95", sums, "95")
    assert not ends_with_answer("7+8=15 so 195", sums, "95")
    assert not ends_with_answer("so 95 and more", sums, "95")
    assert not ends_with_answer("95", sums, "95")


def test_the_same_recipe_gives_the_same_weights_bit_for_bit(recipe: Path, tmp_path: Path) -> None:
    first, second = command(recipe, tmp_path / "a"), command(recipe, tmp_path / "b")
    assert first.returncode == 0, first.stderr
    assert second.returncode == 0, second.stderr
    assert weights_hash(tmp_path / "a") == weights_hash(tmp_path / "b")
    other = command(recipe, tmp_path / "c", "seed=4")
    assert other.returncode == 0, other.stderr
    assert weights_hash(tmp_path / "a") != weights_hash(tmp_path / "c")


def test_the_saved_recipe_makes_the_model_again(recipe: Path, tmp_path: Path) -> None:
    assert command(recipe, tmp_path / "a", "training.steps=5").returncode == 0
    assert command(tmp_path / "a" / "recipe.yaml", tmp_path / "b").returncode == 0
    assert weights_hash(tmp_path / "a") == weights_hash(tmp_path / "b")
    metrics = json.loads((tmp_path / "a" / "metrics.json").read_text())
    assert set(metrics["accuracy"]["addition"]) == {"questions", "samples", "greedy", "pass@1", "pass@2"}


def test_training_lowers_the_loss_and_the_folder_is_an_ordinary_one(tmp_path: Path) -> None:
    losses: list[float] = []
    pretrain(
        tmp_path / "model",
        shape=TinyShape(hidden_size=32, num_layers=1, num_heads=2, num_kv_heads=1, intermediate_size=64),
        specs=(TraceSpec(kind="copy", habits={"direct": 1.0}, min_length=1, max_length=1),),
        training=Training(steps=120, batch_size=32, lr=1e-2, warmup_steps=5),
        questions=2,
        samples=2,
        progress=lambda step, loss: losses.append(loss),
    )
    assert losses[0] > 4.0  # close to ln 262 = 5.6: nothing known
    assert losses[-1] < 0.7  # 3 of 5 tokens ("so ", letter, end) are fixed; ln 16 / 5 = 0.55 without copying
    model = load_model(tmp_path / "model", device="cpu")
    assert load_tokenizer(tmp_path / "model").vocabulary_size == model.config.vocab_size


def test_pretraining_does_not_disturb_anyone_elses_random_numbers(tmp_path: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    pretrain(
        tmp_path / "model",
        shape=TinyShape(hidden_size=16, num_layers=1, num_heads=2, num_kv_heads=1, intermediate_size=16),
        specs=(TraceSpec(kind="copy", habits={"direct": 1.0}, min_length=1, max_length=1),),
        training=Training(steps=1, batch_size=2),
        questions=1,
        samples=1,
    )
    assert torch.equal(torch.rand(3), expected)


def test_an_existing_folder_is_refused_before_training(recipe: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("precious")
    with pytest.raises(ModelError, match="not empty"):
        pretrain(
            tmp_path / "out",
            shape=TinyShape(),
            specs=(TraceSpec(kind="copy"),),
            training=Training(steps=10**9),
        )
    assert command(recipe, tmp_path / "out").returncode == 2


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("training.step=5", "did you mean training.steps"),
        ("traces.0.kind=division", "traces.0.kind = 'division'"),
        ("model.hidden_size=tiny", "model.hidden_size = 'tiny'"),
        ("seed", "expected setting=value"),
    ],
)
def test_a_wrong_setting_is_named(recipe: Path, override: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_pretrain(recipe, (override,))
    assert said in str(refused.value)


def test_a_recipe_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: expected a recipe"):
        load_pretrain(tmp_path / "nowhere.yaml")


def test_help_loads_no_torch() -> None:
    script = (
        "import sys; from peira.cli.main import main\n"
        "try: main(['pretrain', '--help'])\n"
        "except SystemExit: pass\n"
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "--out" in done.stdout


def test_a_setting_that_makes_no_sense_leaves_with_the_usage_code(
    recipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(["pretrain", str(recipe), "traces.0.habits={column: 1, dance: 1}"])
    assert left.value.code == 2
    assert "habits = ['dance']" in capsys.readouterr().err


def test_the_shipped_model_is_small_and_was_made_by_the_recipe_in_the_project() -> None:
    folder = resolve("tiny-arith")
    assert (folder / "model.safetensors").stat().st_size < 3e6
    assert load_pretrain(folder / "recipe.yaml") == load_pretrain(RECIPE)


def test_the_shipped_model_keeps_its_accuracy_in_bfloat16() -> None:
    weights = load_file(resolve("tiny-arith") / "model.safetensors")
    assert {value.dtype for value in weights.values()} == {torch.float32}
    problems = shipped_problems(16)
    model = load_model(resolve("tiny-arith"), dtype="bfloat16", device="cpu")
    assert 0.1 < pass_at_1(model, problems, samples=4) < 0.7


def shipped_problems(count: int) -> tuple[Problem, ...]:
    config = load_pretrain(RECIPE)
    spec = TraceSpec(**config.traces[0].model_dump())
    return heldout_problems(spec, random.Random(12345), count, heldout_fraction=config.heldout_fraction)


def pass_at_1(model: torch.nn.Module, problems: tuple[Problem, ...], *, samples: int) -> float:
    tokenizer = load_tokenizer(resolve("tiny-arith")).backend
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        drawn = completions(model, tokenizer, [p.prompt for p in problems], samples=samples)  # type: ignore[arg-type]
    right = [
        text.endswith(f"so {p.answer}") for texts, p in zip(drawn, problems, strict=True) for text in texts
    ]
    return sum(right) / len(right)


def test_the_shipped_model_is_as_good_on_fresh_sums_as_its_metrics_say() -> None:
    problems = shipped_problems(64)
    model = load_model(resolve("tiny-arith"), device="cpu")
    tokenizer = load_tokenizer(resolve("tiny-arith")).backend
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        drawn = completions(model, tokenizer, [p.prompt for p in problems], samples=16)  # type: ignore[arg-type]
        greedy = completions(model, tokenizer, [p.prompt for p in problems], samples=1, temperature=0.0)  # type: ignore[arg-type]
    right = [[t.endswith(f"so {p.answer}") for t in texts] for texts, p in zip(drawn, problems, strict=True)]
    stated = json.loads((resolve("tiny-arith") / "metrics.json").read_text())["accuracy"]["addition"]
    pass_1 = sum(map(sum, right)) / (64 * 16)
    pass_16 = sum(map(any, right)) / 64
    mode = sum(t[0].endswith(f"so {p.answer}") for t, p in zip(greedy, problems, strict=True)) / 64
    # The standard error over 64 questions is at most 0.06; three of them.
    assert pass_1 == pytest.approx(stated["pass@1"], abs=0.1)
    assert mode == pytest.approx(stated["greedy"], abs=0.2)
    assert 0.2 <= pass_1 <= 0.5
    assert pass_16 >= 0.9
