"""Recipe files and overrides in, one configuration or one readable error out."""

from pathlib import Path

import pytest

from peira.config.load import load_config, load_settings
from peira.config.presets import PRESETS
from peira.config.pretrain import PretrainConfig, load_pretrain
from peira.config.run import RunConfig
from peira.config.show import as_yaml
from peira.errors import ConfigError, ExitCode

BASE = {"model": "some/model", "data": "tasks.jsonl", "verifier": "math"}
TEXT = "model: some/model\ndata: tasks.jsonl\nverifier: math\n"


@pytest.fixture
def recipe(tmp_path: Path):
    def write(text: str, name: str = "recipe.yaml") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def problems(source: object, *overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_config(source, overrides, notice=lambda _: None)  # type: ignore[arg-type]
    assert caught.value.exit_code == ExitCode.USAGE
    return str(caught.value).splitlines()


def read(source: object, *overrides: str) -> RunConfig:
    return load_config(source, overrides, notice=lambda text: pytest.fail(text))  # type: ignore[arg-type]


# ---------------------------------------------------------------- what is understood


def test_scalars_stand_for_sections_with_a_shorthand(recipe):
    run = read(recipe(TEXT + "algorithm: grpo\nengine: local\n"))
    assert run.model.name == "some/model"
    assert run.data.path == "tasks.jsonl"
    assert [verifier.kind for verifier in run.verifiers] == ["math"]
    assert run.engine.kind == "local"
    assert run.algorithm.name == "grpo"


def test_a_recipe_without_a_name_has_that_of_its_file(recipe):
    assert read(recipe(TEXT, "gsm8k.yaml")).name == "gsm8k"
    assert read(recipe(TEXT + "name: mine\n")).name == "mine"
    assert read(recipe(TEXT), "name=other").name == "other"


def test_a_verifier_with_a_colon_is_a_function(recipe):
    run = read(recipe(TEXT), "verifier=reward.py:score")
    assert run.verifiers[0].kind == "function"
    assert run.verifiers[0].ref == "reward.py:score"  # type: ignore[union-attr]


def test_overrides_reach_every_depth_and_the_last_one_wins():
    run = read(BASE, "sampling.max_tokens=64", "sampling.max_tokens=32", "algorithm.kl.coefficient=0.1")
    assert run.sampling.max_tokens == 32
    assert run.algorithm.kl.coefficient == 0.1


def test_an_override_of_one_field_keeps_the_others(recipe):
    run = read(recipe(TEXT + "sampling: {max_tokens: 7, temperature: 0.5}\n"), "sampling.max_tokens=9")
    assert (run.sampling.max_tokens, run.sampling.temperature) == (9, 0.5)


def test_list_items_can_be_overridden_and_added(recipe):
    text = TEXT.replace("verifier: math", "verifiers: [math, {kind: exact, name: same, weight: 0.5}]")
    run = read(recipe(text), "verifiers.1.weight=0.25", "verifiers+={kind: format, pattern: .*}")
    assert [verifier.kind for verifier in run.verifiers] == ["math", "exact", "format"]
    assert run.verifiers[1].weight == 0.25
    assert run.verifiers[1].name == "same"


def test_numbers_of_yaml_12_and_text_that_looks_like_numbers(recipe):
    # YAML 1.1 reads 1e-5 as text; a revision or a name that looks like a number is still text
    run = read(
        recipe(TEXT + "optimizer: {lr: 1e-5}\nname: 007\n"), "model.revision=123", "optimizer.eps=1e-9"
    )
    assert run.optimizer.lr == 1e-5
    assert run.optimizer.eps == 1e-9
    assert run.name == "7"  # YAML reads 007 as an octal number; quotes keep it
    assert run.model.revision == "123"


def test_text_overrides_are_taken_as_they_stand(recipe):
    run = read(
        recipe(TEXT), "data.system_prompt=Answer: yes, or [no] # please", 'data.prompt_template="Q: {prompt}"'
    )
    assert run.data.system_prompt == "Answer: yes, or [no] # please"
    assert run.data.prompt_template == "Q: {prompt}"
    assert read(recipe(TEXT), "model.revision=null").model.revision is None


def test_settings_can_refer_to_each_other(recipe):
    run = read(recipe(TEXT + "group_size: 4\nprompts_per_step: ${group_size}\n"), "group_size=6")
    assert (run.group_size, run.prompts_per_step) == (6, 6)


def test_a_preset_fills_only_what_was_not_given(recipe):
    # grpo: clip 0.2/0.2, population std, sequence mean
    run = read(recipe(TEXT + "algorithm: {name: grpo, clip_high: 0.3}\n"))
    assert (run.algorithm.scale, run.algorithm.average) == ("population_std", "sequence_mean")
    assert (run.algorithm.clip_low, run.algorithm.clip_high) == (0.2, 0.3)


def test_another_preset_keeps_given_fields_and_drops_those_of_the_old_preset(recipe):
    resolved = "algorithm: {name: grpo, scale: population_std, average: sequence_mean, clip_high: 0.3}\n"
    run = read(recipe(TEXT + resolved), "algorithm=dr_grpo")
    assert (run.algorithm.scale, run.algorithm.average) == ("none", "constant")  # the rows of dr_grpo
    assert run.algorithm.clip_high == 0.3  # given, and no row's


@pytest.mark.parametrize("old", PRESETS)
@pytest.mark.parametrize("new", ["grpo", "avspo", "fipo", "standard"])
def test_a_saved_configuration_can_take_another_preset(tmp_path, old, new):
    saved = tmp_path / "config.yaml"
    saved.write_text(as_yaml(read(BASE, f"algorithm={old}")))
    assert read(saved, f"algorithm={new}").algorithm == read(BASE, f"algorithm={new}").algorithm


def test_python_and_files_agree_on_presets(recipe):
    from peira.config.algorithm import AlgorithmConfig

    assert AlgorithmConfig(name="dapo") == read(recipe(TEXT + "algorithm: dapo\n")).algorithm


def test_another_engine_kind_leaves_out_what_only_the_old_one_had(recipe):
    said: list[str] = []
    path = recipe(TEXT + "engine: {kind: local, max_rows: 4}\n")
    run = load_config(path, ["engine=scripted"], notice=said.append)
    assert run.engine.kind == "scripted"
    assert len(said) == 1
    assert "engine.max_rows" in said[0]
    assert f"{path}:4" in said[0]


def test_another_model_leaves_out_the_revision_of_the_old_one(recipe):
    said: list[str] = []
    path = recipe("model: {name: a/b, revision: abc, dtype: float32}\n" + TEXT.split("\n", 1)[1])
    run = load_config(path, ["model=c/d"], notice=said.append)
    assert (run.model.name, run.model.revision, run.model.dtype) == ("c/d", None, "float32")
    assert "model.revision" in said[0]


def test_own_data_replace_the_sources_of_a_recipe(recipe):
    said: list[str] = []
    text = TEXT.replace("data: tasks.jsonl", "data: {sources: [a.jsonl, b.jsonl], shuffle: false}")
    run = load_config(recipe(text), ["data.path=mine.jsonl"], notice=said.append)
    assert run.data.path == "mine.jsonl"
    assert run.data.sources == ()
    assert run.data.shuffle is False
    assert "data.sources" in said[0]


def test_an_engine_setting_alone_is_one_of_the_default_engine():
    assert read(BASE, "engine.max_rows=3").engine.max_rows == 3  # type: ignore[union-attr]


def test_a_mapping_is_read_like_a_file_and_not_changed():
    given = {**BASE, "sampling": {"max_tokens": 5}}
    assert read(given, "sampling.max_tokens=6").sampling.max_tokens == 6
    assert given == {**BASE, "sampling": {"max_tokens": 5}}


def test_any_section_can_stand_for_a_file():
    traces = {"traces": [{"kind": "copy"}]}
    assert load_settings(PretrainConfig, traces, ["traces.0.weight=2"]).traces[0].weight == 2
    with pytest.raises(ConfigError, match=r"traning = .*did you mean training\?"):
        load_settings(PretrainConfig, traces, ["traning.steps=2"])


# ---------------------------------------------------------------- what is refused, and how


def test_a_missing_file_names_the_one_that_was_meant(recipe, tmp_path):
    recipe(TEXT, "gsm8k.yaml")
    assert problems(tmp_path / "gsm8.yaml") == [
        f"{tmp_path}/gsm8.yaml: expected a recipe file, found none; did you mean {tmp_path}/gsm8k.yaml?"
    ]


def test_a_folder_is_no_recipe(tmp_path):
    assert "expected a readable recipe file" in problems(tmp_path)[0]


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n", "---\n"])
def test_an_empty_file_is_refused(recipe, text):
    path = recipe(text)
    assert problems(path) == [f"{path}: expected settings, found an empty file; docs/config.md lists them"]


@pytest.mark.parametrize("text", ["- a\n- b\n", "just words\n", "42\n"])
def test_a_file_that_is_no_mapping_is_refused(recipe, text):
    path = recipe(text)
    assert problems(path) == [f"{path}:1: expected lines of `setting: value`, found something else"]


def test_bytes_that_are_no_text_are_refused(tmp_path):
    path = tmp_path / "r.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    assert problems(path) == [f"{path}: expected UTF-8 text; give the path of a YAML file"]


def test_a_syntax_error_names_line_and_column(recipe):
    path = recipe("model: m\ngroup_size: [1\nsteps: 2\n")
    assert problems(path)[0].startswith(f"{path}:3:")
    tab = recipe("model:\n\tname: m\n")
    assert problems(tab)[0].startswith(f"{tab}:2:")


def test_a_key_given_twice_names_both_lines(recipe):
    path = recipe(TEXT + "sampling:\n  max_tokens: 1\n  max_tokens: 2\n")
    assert problems(path) == [f"{path}:6: sampling.max_tokens: given before, in line 5; keep one"]


def test_verifier_and_verifiers_are_one_setting(recipe):
    path = recipe(TEXT + "verifiers: [exact]\n")
    assert problems(path) == [
        f"{path}:4: verifiers: expected verifiers once, it is given already ({path}:3); keep one"
    ]


def test_a_misspelt_setting_names_file_line_path_the_nearest_and_all(recipe):
    path = recipe(TEXT + "sampling:\n  max_token: 24\n")
    (line,) = problems(path)
    assert line.startswith(
        f"{path}:5: sampling.max_token = 24: expected a setting of sampling; "
        "did you mean sampling.max_tokens? "
    )
    assert "There are: temperature, top_p, top_k, max_tokens, stop_strings, stop_token_ids" in line


@pytest.mark.parametrize(
    ("override", "meant"),
    [
        ("algoritm=grpo", "algorithm"),
        ("algorithm.kl.coeficient=1", "algorithm.kl.coefficient"),
        ("lr=1e-5", "optimizer.lr"),  # right name, wrong place
        ("optimizer.max_tokens=3", "sampling.max_tokens"),
        ("verifiers.0.wieght=1", "verifiers.0.weight"),
        ("engine.max_row=1", "engine.max_rows"),
        ("data.held_out=0.1", "data.held_out_fraction"),
    ],
)
def test_a_misspelt_override_names_what_was_meant(override, meant):
    (line,) = problems(BASE, override)
    assert line.startswith(f"command line: {override.partition('=')[0]} = ")
    assert f"did you mean {meant}?" in line


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("group_size=1", "group_size = 1: expected at least 2"),
        ("group_size=many", "group_size = 'many': expected a whole number"),
        ("group_size=2.5", "group_size = 2.5: expected a whole number"),
        ("sampling.temperature=0", "sampling.temperature = 0: expected more than 0"),
        ("sampling.temperature=hot", "sampling.temperature = 'hot': expected a number"),
        ("sampling.temperature=.nan", "sampling.temperature = nan: expected a finite number"),
        ("evaluation.before=perhaps", "evaluation.before = 'perhaps': expected true or false"),
        ("sampling.stop_strings=3", "sampling.stop_strings = 3: expected a list, as in [a, b]"),
        ("evaluation.ks=[0]", "evaluation.ks.0 = 0: expected at least 1"),
        ("optimizer.betas=[0.9]", "optimizer.betas.1: expected a value"),
        ("optimizer.betas=[0.9, 1]", "optimizer.betas.1 = 1: expected less than 1"),
        ("optimizer.schedule=cosin", "expected one of constant, linear, cosine; did you mean cosine?"),
        ("sampling=3", "sampling = 3: expected a group of settings, as in {a: b}"),
        ("model.name=[a]", None),
        (
            "data.sources.0.path=x",
            "data.sources.0: expected none: the list is empty; add one with data.sources+=",
        ),
        ("verifiers=[]", "verifiers = []: expected at least 1 of them"),
        ("seed=-1", "seed = -1: expected at least 0"),
        ("name=", "name = '': expected some text"),
    ],
)
def test_types_and_ranges_are_one_readable_line(override, expected):
    if expected is None:  # text settings take what stands there
        assert load_config(BASE, [override]).model.name == "[a]"
        return
    (line,) = problems(BASE, override)
    assert expected in line
    assert line.startswith("command line: ")
    assert "pydantic" not in line


def test_an_unknown_kind_lists_the_kinds():
    (line,) = problems(BASE, "verifier=mth")
    assert "expected one of math, numeric," in line
    assert line.endswith("did you mean math?")
    (line,) = problems(BASE, "engine=lokal")
    assert "did you mean local?" in line


def test_an_unknown_preset_names_the_nearest():
    (line,) = problems(BASE, "algorithm=drgrpo")
    assert line.startswith("command line: algorithm.name = 'drgrpo': expected one of standard, grpo, dr_grpo")
    assert "dr_grpo" in line.rpartition("did you mean")[2]


def test_a_missing_setting_says_what_it_is_for(recipe):
    path = recipe("model: m\n")
    lines = problems(path)
    assert lines[0].startswith(f"{path}: data: expected a value")
    assert lines[1].startswith(f"{path}: verifiers: expected a value")
    (line,) = problems(BASE, "verifiers+=format")
    assert line.startswith("command line: verifiers.1.pattern: expected a value")


def test_everything_wrong_is_said_at_once(recipe):
    path = recipe(TEXT + "group_size: 1\nsteps: soon\nsmapling: {}\n")
    lines = problems(path, "optimizer.lr=-1", "per_device_train_batch_size=4")
    assert len(lines) == 5
    places = {"command line", f"{path}:4", f"{path}:5", f"{path}:6"}
    assert {line.split(": ")[0] for line in lines} == places


@pytest.mark.parametrize("override", ["group_size", "=3", "group size=3", "a..b=3", "--steps=3", ""])
def test_an_override_has_the_form_setting_equals_value(override):
    (line,) = problems(BASE, override)
    assert line == f"command line: {override!r}: expected setting=value, as in sampling.max_tokens=64"


def test_an_override_that_is_no_yaml_is_refused():
    (line,) = problems(BASE, "evaluation.ks=[1")
    assert line.startswith("command line: evaluation.ks = '[1': expected a YAML value")


def test_only_lists_can_be_added_to():
    (line,) = problems(BASE, "model+=x")
    assert line == "command line: model+=: expected a list of sections to add to; use ="


def test_a_reference_to_nothing_is_refused(recipe):
    path = recipe(TEXT + "steps: ${no_such}\n")
    (line,) = problems(path)
    assert line.startswith(f"{path}:4: steps: ")
    assert "no_such" in line


def test_an_error_inside_a_list_names_its_own_line(recipe):
    path = recipe("model: m\ndata: d.jsonl\nverifiers:\n  - math\n  - kind: exact\n    weight: heavy\n")
    assert problems(path)[0] == f"{path}:6: verifiers.1.weight = 'heavy': expected a number"


def test_a_switch_is_no_number_and_yaml_words_are_shown_as_yaml():
    assert problems(BASE, "steps=true") == ["command line: steps = true: expected a whole number"]
    assert problems(BASE, "optimizer.lr=true") == ["command line: optimizer.lr = true: expected a number"]
    assert problems(BASE, "steps=null") == ["command line: steps = null: expected a whole number"]
    assert read(BASE, "evaluation.before=true", "engine.threads=null").evaluation.before


def test_a_setting_left_blank_is_named_as_missing(recipe):
    text = TEXT.replace("verifier: math", "verifier:").replace("model: some/model", "model:")
    (model, verifiers) = problems(recipe(text))
    assert "recipe.yaml:1: model: expected a value" in model
    assert "recipe.yaml:3: verifiers: expected a value" in verifiers


def test_a_kind_that_is_not_there_is_shown_alone(recipe):
    text = TEXT + "engine: {kind: local, threads: 2}\n"
    (line,) = problems(recipe(text), "engine=ray")
    assert line == "command line: engine.kind = 'ray': expected one of local, scripted"


def test_a_value_that_contains_itself_is_refused(recipe):
    (line,) = problems(recipe(TEXT + "sampling: &a\n  stop_strings: [*a]\n"))
    assert "recipe.yaml:4: sampling.stop_strings.0: refers to itself" in line


@pytest.mark.parametrize("name", [".", "..", "../up", "a/../..", "/elsewhere"])
def test_a_run_is_written_below_runs_dir(name):
    (line,) = problems(BASE, f"name={name}")
    assert line == (
        f"command line: name = {name!r}: expected a folder below runs_dir; set runs_dir to write elsewhere"
    )


def test_an_empty_path_is_refused_where_it_was_given():
    for name in ("data.path", "data.eval_path"):
        assert problems(BASE, f"{name}=") == [f"command line: {name} = '': expected some text"]


def test_the_place_of_a_template_is_that_of_the_template(recipe):
    (line,) = problems(recipe(TEXT), "data.prompt_template=hello")
    assert line.startswith("command line: data.prompt_template: no field such as {prompt}")
    (line,) = problems(recipe(TEXT), "data.prompt_template={")
    assert line.startswith("command line: data.prompt_template: Single '{'")


def test_a_position_in_an_empty_list_has_a_way_out():
    (line,) = problems(BASE, "data.eval_sources.0.path=x")
    assert line == (
        "command line: data.eval_sources.0: expected none: the list is empty; add one with "
        "data.eval_sources+=..."
    )


def test_the_recipe_of_another_command_is_refused_setting_by_setting(recipe):
    with pytest.raises(ConfigError) as caught:
        load_pretrain(recipe("traces: [{kind: addition}]\ntraining: {stps: 3}\noptimizer: {lr: 1}\n"))
    lines = str(caught.value).splitlines()
    assert "did you mean training.steps? There are: steps, batch_size" in lines[0]
    assert "recipe.yaml:3: optimizer" in lines[1]
    assert "there are: name, seed" in lines[1].lower()


def test_a_colon_without_a_space_is_pointed_out():
    (line,) = problems(BASE, "verifiers=[{kind:numeric}]")
    assert line.endswith(
        "expected a `kind` that says which one is meant; put a space behind the colon of kind:numeric"
    )


def test_a_file_without_its_function_is_told_how_to_name_it():
    (line,) = problems(BASE, "verifier=mine.py")
    assert line.endswith("; a function in a file is mine.py:NAME")


def test_the_settings_of_a_single_verifier_need_no_position(recipe):
    text = "model: some/model\ndata: tasks.jsonl\n"
    for start in (text, text + "verifier: math\n", text + "verifiers: [numeric]\n"):
        (verifier,) = load_config(
            recipe(start), ["verifier.kind=function", "verifier.ref=mine.py:near"], notice=lambda _: None
        ).verifiers
        assert (verifier.kind, verifier.ref) == ("function", "mine.py:near")  # type: ignore[union-attr]
    assert problems(recipe(text + "verifiers: [math, exact]\n"), "verifier.weight=0.5") == [
        "command line: verifier.weight: expected the position of one of 2 verifiers; write "
        "verifiers.0.weight, or another number"
    ]
