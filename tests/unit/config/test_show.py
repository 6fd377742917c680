"""A configuration shown to people, and read back."""

from pathlib import Path

from peira.config.load import load_config
from peira.config.pretrain import PretrainConfig
from peira.config.run import RunConfig
from peira.config.section import settings
from peira.config.show import as_yaml, differences, settings_page

ROOT = Path(__file__).parents[3]
GIVEN = {
    "model": "some/model",
    "data": {"path": "tasks.jsonl", "prompt_template": "Q: {prompt}\nA:"},
    "verifiers": ["math", {"kind": "format", "pattern": r"^a\${b}: #x '\d+'$"}, "my.py:score"],
    "algorithm": {"name": "grpo", "clip_high": 0.3},
    "optimizer": {"lr": 1e-7},
    "evaluation": {"samples": 8, "ks": [1, 8]},
}


def test_what_is_shown_reads_back_to_an_equal_configuration(tmp_path):
    run = load_config(GIVEN)
    for comments in (False, True):
        path = tmp_path / "config.yaml"
        path.write_text(as_yaml(run, comments=comments))
        assert load_config(path, notice=lambda text: (_ for _ in ()).throw(AssertionError(text))) == run


def test_comments_say_what_a_setting_means():
    text = as_yaml(load_config(GIVEN), comments=True)
    assert "group_size: 8  # Rollouts per task (G); at least 2, since siblings are compared.\n" in text
    assert "#" not in as_yaml(load_config({**GIVEN, "verifiers": ["math"]}))


def test_differences_are_those_from_the_defaults_and_the_preset():
    assert differences(load_config({**GIVEN, "verifiers": [{"kind": "math", "weight": 2}]})) == {
        "model.name": "some/model",
        "data.path": "tasks.jsonl",
        "data.prompt_template": "Q: {prompt}\nA:",
        "verifiers.0.kind": "math",
        "verifiers.0.weight": 2.0,
        "algorithm.name": "grpo",
        "algorithm.clip_high": 0.3,
        "optimizer.lr": 1e-7,
        "evaluation.samples": 8,
        "evaluation.ks": (1, 8),
    }


def test_differences_as_overrides_give_the_configuration_again():
    run = load_config(GIVEN)
    nested = {name: value for name, value in GIVEN.items() if name not in ("algorithm", "optimizer")}
    changed = differences(run)
    overrides = [
        f"{path}={list(value) if isinstance(value, tuple) else value}"
        for path, value in changed.items()
        if path.startswith(("algorithm", "optimizer"))
    ]
    assert load_config(nested, overrides) == run


def test_every_setting_has_a_meaning():
    missing = [path for root in (RunConfig,) for path, _, field in settings(root) if not field.description]
    assert [path for path in missing if not path.endswith("kind")] == []


def test_the_page_names_every_setting_with_its_type_and_default():
    page = settings_page()
    for path, section, _ in settings(RunConfig):
        if not path.endswith("kind"):
            assert f"| `{path.replace('[]', '.N')}` |" in page, (path, section)
    assert "| `group_size` | whole number >= 2 | `8` |" in page
    assert "| `optimizer.max_grad_norm` | number > 0 or null | `1.0` |" in page
    assert "| `sampling.stop_strings` | list of text | `[]` |" in page


def test_the_page_in_the_docs_is_current():
    # python -m peira.config.show > docs/config.md
    assert (ROOT / "docs" / "config.md").read_text(encoding="utf-8") == settings_page()


def test_sections_of_other_files_can_be_shown():
    config = PretrainConfig.model_validate({"traces": [{"kind": "copy"}]})
    assert "  - kind: copy\n" in as_yaml(config)
