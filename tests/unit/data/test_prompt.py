import pytest
from pydantic import ValidationError

from peira.config.data import DataConfig, SourceConfig
from peira.data.prompt import PromptStyle
from peira.errors import ConfigError, DataError
from peira.types.task import Message


def user(text):
    return Message(role="user", content=text)


def test_a_string_is_one_user_message_or_stays_a_string():
    assert PromptStyle().render("x", {}, "d") == (user("x"),)
    assert PromptStyle(raw=True).render("x", {}, "d") == "x"


def test_messages_where_raw_text_is_asked_for_are_refused():
    with pytest.raises(DataError, match="d: line 1: the prompt is a list of messages"):
        PromptStyle(raw=True).render((user("x"),), {}, "d: line 1")


def test_a_system_prompt_goes_first_unless_there_is_one():
    system = Message(role="system", content="Be brief.")
    own = Message(role="system", content="Be long.")
    style = PromptStyle(system="Be brief.")
    assert style.render("x", {}, "d") == (system, user("x"))
    assert style.render((own, user("x")), {}, "d") == (own, user("x"))


def test_a_template_fills_the_last_user_message_and_leaves_the_others():
    said = Message(role="assistant", content="{prompt}")
    style = PromptStyle(template="[{prompt}] {level}")
    assert style.render((user("a"), said, user("b")), {"level": 3}, "d") == (user("a"), said, user("[b] 3"))


def test_a_template_takes_columns_nested_columns_and_doubled_braces():
    style = PromptStyle(raw=True, template=r"{prompt} {extra.level} \boxed{{}}")
    assert style.render("x", {"extra": {"level": 3}}, "d") == r"x 3 \boxed{}"


def test_braces_in_the_data_are_not_fields():
    style = PromptStyle(raw=True, template="{prompt}!")
    assert style.render(r"\frac{1}{2} {level}", {"level": 3}, "d") == r"\frac{1}{2} {level}!"


def test_an_unknown_field_is_a_setting_error_that_lists_the_columns():
    with pytest.raises(ConfigError, match=r"prompt_template = \{levl\}: .*columns: question, level"):
        PromptStyle(template="{levl}").render("x", {"question": "x", "level": 1}, "d")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"prompt_template": r"{prompt} \boxed{}"}, r"write braces that are meant as such twice"),
        ({"prompt_template": "{prompt"}, r"write braces that are meant as such twice"),
        ({"prompt_template": "{0}"}, "expected column names"),
        ({"prompt_template": "Solve it."}, "every task would show the same text"),
        ({"prompt_format": "raw", "system_prompt": "x"}, "a raw prompt has no messages"),
        ({"sources": [{"path": "b.jsonl"}]}, "path and sources are both given"),
        ({"path": None}, "neither path nor sources is given"),
        ({"eval_path": "b.jsonl", "held_out_fraction": 0.3}, "the fraction would be ignored"),
        ({"eval_path": "b.jsonl", "eval_sources": ["c.jsonl"]}, "eval_path and eval_sources are both given"),
    ],
)
def test_void_combinations_of_settings_are_refused(settings, words):
    with pytest.raises(ValidationError, match=words):
        DataConfig(**{"path": "a.jsonl", **settings})


@pytest.mark.parametrize(
    "settings",
    [
        {"path": "reasoning_gym:countdown", "split": "test"},
        {"path": "synthetic:addition", "columns": {"prompt": "q"}},
        {"path": "a.jsonl", "seed": 3},
        {"path": "a.jsonl", "options": {"digits": 3}},
        {"path": "a.jsonl", "columns": {"promt": "q"}},
    ],
)
def test_a_setting_that_would_be_ignored_is_refused(settings):
    with pytest.raises(ValidationError):
        SourceConfig(**settings)


def test_resolved_settings_can_be_read_again():
    for config in (
        DataConfig(path="synthetic:addition"),
        DataConfig(path="a.jsonl", eval_path="reasoning_gym:countdown"),
        DataConfig(sources=("a.jsonl", {"path": "b.jsonl", "weight": 2})),
    ):
        assert DataConfig.model_validate(config.model_dump(mode="json")) == config
