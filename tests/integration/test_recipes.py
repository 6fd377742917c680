"""Every shipped recipe loads; those for GPUs pass their checks on stand-ins of the same architecture."""

import json
from pathlib import Path

import pytest
import torch

from peira.cli.main import main
from peira.config.load import load_config
from peira.data.prompt import PromptStyle
from peira.data.reading import Reading
from peira.data.rows import Row
from peira.models.memory import Workload, estimate_memory
from peira.models.standin import ARCHITECTURES, standin_config, write_standin

RECIPES = Path(__file__).parents[2] / "recipes"


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.yaml")), ids=lambda path: path.name)
def test_a_recipe_loads_without_a_notice_and_is_named_after_its_file(path):
    assert load_config(path, notice=lambda text: pytest.fail(text)).name == path.stem


GSM8K = [
    {
        "question": f"Ann has {i} apples and buys {2 * i} more. How many has she?",
        "answer": f"She has {i} + {2 * i} = <<{i}+{2 * i}={3 * i}>>{3 * i}.\n#### {3 * i}",
    }
    for i in range(400, 430)
]
MATH = [
    {
        "problem": f"Write $\\frac{{{2 * i}}}{{14}}$ in lowest terms.",
        "level": "Level 1",
        "type": "Algebra",
        "solution": f"Divide by 2: $\\boxed{{\\frac{{{i}}}{{7}}}}$.",
    }
    for i in range(1, 30)
    if i % 7
]
MATH_500 = [
    {
        "problem": f"Solve $x^2 = {i * i}$ for $x > 0$.",
        "solution": f"$x = \\boxed{{{i}}}$",
        "answer": str(i),
        "subject": "Algebra",
        "level": 1,
        "unique_id": f"test/algebra/{i}.json",
    }
    for i in range(2, 12)
]


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, rows in (
        ("gsm8k", GSM8K[:20]),
        ("gsm8k_test", GSM8K[20:]),
        ("math", MATH),
        ("math_500", MATH_500),
    ):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path


def dry_run(recipe: str, *overrides: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main(["train", str(RECIPES / recipe), "--dry-run", *overrides])
    return int(caught.value.code or 0)


@pytest.mark.parametrize("like", ["Qwen/Qwen2.5-0.5B-Instruct", "Qwen/Qwen2.5-1.5B-Instruct"])
def test_gsm8k_passes_its_checks_on_a_stand_in(place, capsys, like):
    write_standin(place / "model", like=like, scale=0.05)
    files = ["data.sources=[gsm8k.jsonl]", "data.eval_sources=[gsm8k_test.jsonl]"]
    assert dry_run("gsm8k.yaml", "model=./model", *files) == 0
    out = capsys.readouterr().out
    assert "64 prompts x 8 rollouts = 512 rollouts per step" in out
    assert "prompt from `question`, answer from `answer` (the text after its last ####)" in out
    assert "answer    '1200'" in out  # 400 + 800, read from behind the ####
    assert "ok      verifier numeric: gold 1.00, wrong 0.00" in out
    assert out.endswith("ready: peira train with the same arguments\n")


@pytest.mark.parametrize("like", ["Qwen/Qwen2.5-0.5B-Instruct", "Qwen/Qwen2.5-1.5B-Instruct"])
def test_math_passes_its_checks_on_a_stand_in(place, capsys, like):
    write_standin(place / "model", like=like, scale=0.05)
    files = [
        "data.sources.0.path=math.jsonl",
        "data.eval_sources.0.path=math_500.jsonl",
        "data.eval_sources.0.split=train",
    ]
    assert dry_run("math.yaml", "model=./model", *files) == 0
    out = capsys.readouterr().out
    assert "64 prompts x 16 rollouts = 1024 rollouts per step" in out
    assert "4 x 1 pass = 4 optimizer steps per step, 300 steps = 1,200 in all" in out
    assert r"answer    '{\\frac{1}{7}}'" in out
    assert "ok      verifier math: gold 1.00, wrong 0.00" in out
    assert out.endswith("ready: peira train with the same arguments\n")


def test_the_models_that_the_gpu_recipes_name_are_the_ones_checked():
    for recipe in ("gsm8k.yaml", "math.yaml"):
        assert load_config(RECIPES / recipe).model.name in ARCHITECTURES


@pytest.mark.parametrize(
    ("recipe", "prompt_tokens", "gigabytes"), [("gsm8k.yaml", 300, 24), ("math.yaml", 800, 80)]
)
def test_a_gpu_recipe_is_estimated_to_fit_the_card_it_names(recipe, prompt_tokens, gigabytes):
    run = load_config(RECIPES / recipe)
    assert f"{gigabytes} GB" in (RECIPES / recipe).read_text()
    load = Workload(
        num_rollouts=run.prompts_per_step * run.group_size,
        group_size=run.group_size,
        max_rows=run.engine.max_rows,  # type: ignore[union-attr]
        prompt_tokens=prompt_tokens,
        max_tokens=run.sampling.max_tokens,
        micro_batch_tokens=run.micro_batch_tokens,
    )
    config = standin_config(run.model.name)
    estimate = estimate_memory(config, load, dtype=torch.bfloat16, device=torch.device("cuda"))
    assert estimate.peak_bytes < gigabytes * 1e9


@pytest.mark.parametrize(
    ("solution", "answer"),
    [
        (r"so $\boxed{\frac{1}{2}}$.", r"{\frac{1}{2}}"),
        (r"first \boxed{5}, then \boxed{x^{2}}", r"{x^{2}}"),
        (r"$=\boxed 4.$", "4"),
        (r"\fbox{12}", "{12}"),
        (r"\boxed{\left\{\frac{\sqrt{2^{3}}}{2}\right\}}", r"{\left\{\frac{\sqrt{2^{3}}}{2}\right\}}"),
        (r"\boxed{(-\infty, 3) \cup \{4\}}", r"{(-\infty, 3) \cup \{4\}}"),
    ],
)
def test_the_answer_of_a_worked_solution_is_its_last_box(solution, answer):
    pattern = load_config(RECIPES / "math.yaml").data.sources[0].answer_pattern
    row = Row(place="line 1", values={"problem": "p", "solution": solution})
    assert Reading.choose([row], {}, pattern).task(row, PromptStyle(), source="s").answer == answer
