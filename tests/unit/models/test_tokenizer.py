"""Messages become ids once, with exactly the special tokens the template writes."""

import json
import shutil
from pathlib import Path

import pytest

from peira.errors import ModelError
from peira.models.catalogue import resolve
from peira.models.tiny import character_tokenizer
from peira.models.tokenizer import HFTokenizer, load_tokenizer
from peira.types.task import Message

HELLO = (Message(role="user", content="Hi"),)
PLAIN = "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}<|assistant|>"


def tokenizer(template: str | None = None, **settings: object) -> HFTokenizer:
    backend = character_tokenizer()
    if template is not None:
        backend.chat_template = template or None
    return HFTokenizer(backend, **settings)  # type: ignore[arg-type]


def test_messages_are_rendered_straight_to_ids() -> None:
    # <|pad|> 0, <|bos|> 1, <|end|> 2, <|system|> 3, <|user|> 4, <|assistant|> 5; then bytes in the order of
    # their printable stand-ins, which begins with "!" (33) -> 6, so "H" (72) -> 45 and "i" (105) -> 78
    assert tokenizer().render(HELLO) == (1, 4, 45, 78, 2, 5)


def test_plain_text_gets_the_beginning_of_sequence_token_and_nothing_else() -> None:
    assert tokenizer().render("Hi") == (1, 45, 78)


@pytest.mark.parametrize("text", ["37+58=", "  two  spaces , and a tab\t\n", "naïve 你好 \U0001f600", ""])
def test_decoding_gives_the_text_back_exactly(text: str) -> None:
    own = tokenizer()
    assert own.decode(own.render(text)) == text


def test_special_tokens_are_left_out_of_text_unless_asked_for() -> None:
    own = tokenizer()
    ids = own.render(HELLO)
    assert own.decode(ids, skip_special_tokens=False) == "<|bos|><|user|>Hi<|end|><|assistant|>"
    assert own.decode(ids) == "Hi"


def test_end_ids_are_those_of_tokenizer_and_model_together() -> None:
    assert tokenizer(model_end_ids=(0, 2, 5)).end_ids == (2, 0, 5)


def test_pad_falls_back_to_the_end_token() -> None:
    backend = character_tokenizer()
    assert HFTokenizer(backend).pad_id == 0
    backend.pad_token = None
    assert HFTokenizer(backend).pad_id == 2


def test_without_any_end_token_nothing_would_ever_stop() -> None:
    backend = character_tokenizer()
    backend.eos_token = None
    with pytest.raises(ModelError, match="eos_token = None"):
        HFTokenizer(backend)
    assert HFTokenizer(backend, model_end_ids=(2,)).end_ids == (2,)


def test_an_end_id_outside_the_vocabulary_is_refused() -> None:
    with pytest.raises(ModelError, match=r"eos_token_id = \[50256\]"):
        tokenizer(model_end_ids=(50256,))


def test_messages_without_a_chat_template_are_refused_with_the_ways_out() -> None:
    own = tokenizer("")
    assert not own.has_chat_template
    assert own.render("Hi") == (1, 45, 78)
    with pytest.raises(ModelError) as refused:
        own.render(HELLO)
    assert "model.chat_template" in str(refused.value)
    assert "data.prompt_format=raw" in str(refused.value)


def test_a_template_that_refuses_a_role_says_which_roles_it_was_given() -> None:
    strict = tokenizer(
        "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}" + PLAIN
    )
    with pytest.raises(ModelError, match=r"\['system', 'user'\].*no system"):
        strict.render((Message(role="system", content="Be brief."), *HELLO))


def test_our_own_template_has_nothing_odd_about_it() -> None:
    assert tokenizer().warnings == []


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{{ bos_token }}{{ bos_token }}" + PLAIN, "twice"),
        (
            "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'].split('</think>')[-1] }}<|end|>"
            "{% endfor %}<|assistant|>",
            "drops <think>",
        ),
        (PLAIN + "<think>\n", "opens a <think> block"),
        ("{{ messages | length }}" + PLAIN, "not prefix-stable"),
        ("{{ strftime_now('%d %b %Y') }}" + PLAIN, "today's date"),
        ("", "no chat template"),
        ("{{ messages[0]['name'].upper() }}", "does not render"),
    ],
)
def test_an_odd_template_is_reported(template: str, said: str) -> None:
    found = tokenizer(template).warnings
    assert any(said in warning for warning in found), found


def test_prefix_stability_compares_ids_of_a_growing_conversation() -> None:
    assert tokenizer().is_prefix_stable()
    assert not tokenizer("{{ messages | length }}" + PLAIN).is_prefix_stable()


def test_an_example_is_described_with_its_way_back() -> None:
    text = tokenizer().describe(HELLO)
    assert "ids       1 4 45 78 2 5" in text
    assert "the same text" in text
    assert "'<|end|>' = 2" in text


def test_saving_and_loading_keeps_the_template_in_use(tmp_path: Path) -> None:
    tokenizer(PLAIN).save(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    loaded = load_tokenizer(tmp_path)
    assert loaded.render(HELLO) == (4, 45, 78, 2, 5)
    assert load_tokenizer(tmp_path, chat_template="{{ messages[0]['content'] }}").render(HELLO) == (45, 78)
    (tmp_path / "other.jinja").write_text("{{ bos_token }}{{ messages[0]['content'] }}")
    assert load_tokenizer(tmp_path, chat_template=str(tmp_path / "other.jinja")).render(HELLO) == (1, 45, 78)


def test_a_template_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"model\.chat_template = 'nowhere\.jinja'"):
        load_tokenizer("tiny-arith", chat_template="nowhere.jinja")


def test_end_ids_come_from_the_generation_configuration_and_else_from_the_model_configuration(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(resolve("tiny-arith"), folder)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [0, 2]}))
    assert load_tokenizer(folder).end_ids == (2, 0)
    (folder / "generation_config.json").unlink()
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "eos_token_id": 5}))
    assert load_tokenizer(folder).end_ids == (2, 5)


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelError, match=r"tokenizer\.json"):
        load_tokenizer(tmp_path)


def test_a_damaged_tokenizer_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(resolve("tiny-arith"), folder)
    (folder / "tokenizer.json").write_text('{"model": ')
    with pytest.raises(ModelError, match="readable tokenizer"):
        load_tokenizer(folder)
