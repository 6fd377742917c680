"""Text to ids and back, once each, by a `transformers` tokenizer."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from peira.errors import ModelError
from peira.models.catalogue import resolve
from peira.types.task import Message

_PROBE = (Message(role="user", content="Alpha?"),)
_REPLY = Message(role="assistant", content="Beta.")
_FOLLOW_UP = Message(role="user", content="Gamma?")


class HFTokenizer:
    """A `transformers` tokenizer as `peira.types.tokenizer.Tokenizer`.

    `warnings` lists what is odd about its chat template, in sentences a person can act on; nothing in it
    prevents training.

    Args:
        backend: The tokenizer itself.
        model_end_ids: End tokens that the model's `generation_config.json` names.
        place: What errors call it: the folder or hub id.
    """

    def __init__(
        self, backend: PreTrainedTokenizerBase, *, model_end_ids: Sequence[int] = (), place: str = "tokenizer"
    ) -> None:
        self.backend = backend
        self.place = place
        own = [] if backend.eos_token_id is None else [int(backend.eos_token_id)]
        self._end_ids = tuple(dict.fromkeys([*own, *map(int, model_end_ids)]))
        if not self._end_ids:
            raise ModelError(
                f"{place}: eos_token = None: expected an end token in the tokenizer or in "
                "generation_config.json; without one no completion ever ends"
            )
        size = len(backend)
        if outside := [index for index in self._end_ids if not 0 <= index < size]:
            raise ModelError(
                f"{place}: eos_token_id = {outside}: expected ids in [0, {size}); "
                "tokenizer and generation_config.json do not belong together"
            )
        self.warnings = self._findings()

    @property
    def vocabulary_size(self) -> int:
        """Ids lie in [0, vocabulary_size): added tokens count, padding rows of the embedding do not."""
        return len(self.backend)

    @property
    def end_ids(self) -> tuple[int, ...]:
        """The tokenizer's end token first, then those of the model's generation configuration."""
        return self._end_ids

    @property
    def pad_id(self) -> int:
        """The pad token, or an end token where there is none: masked positions may hold anything."""
        pad = self.backend.pad_token_id
        return self._end_ids[0] if pad is None else int(pad)

    def render(self, prompt: str | tuple[Message, ...]) -> tuple[int, ...]:
        """Ids of a prompt.

        Messages go through the chat template with its generation prompt, straight to ids: the template writes
        every special token itself, so none is added on top. A string gets what the tokenizer puts around
        plain text, usually a beginning-of-sequence token or nothing.

        Raises:
            ModelError: messages were given and there is no chat template, or the template refuses them.
        """
        if isinstance(prompt, str):
            encoded: list[int] = self.backend(prompt, return_attention_mask=False)["input_ids"]
            end = self.backend.eos_token_id
            # A few tokenizers close plain text with an end token; a prompt must stay open.
            while encoded and encoded[-1] == end and not prompt.endswith(str(self.backend.eos_token)):
                encoded = encoded[:-1]
            return tuple(encoded)
        return self._template_ids(prompt, add_generation_prompt=True)

    def render_text(self, messages: tuple[Message, ...]) -> str:
        """The text that `render` turns into ids, for people to look at."""
        return str(self._apply(messages, tokenize=False, add_generation_prompt=True))

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Text of these ids, exactly: spaces are left as the tokens have them."""
        return str(
            self.backend.decode(
                list(token_ids), skip_special_tokens=skip_special_tokens, clean_up_tokenization_spaces=False
            )
        )

    @property
    def has_chat_template(self) -> bool:
        """Whether messages can be rendered."""
        return bool(self.backend.chat_template)

    def is_prefix_stable(self) -> bool:
        """Whether a conversation's ids only ever grow at their end when a reply and a question are added.

        Where not, the ids of earlier turns change as the conversation goes on, and multi-turn training must
        append ids itself rather than render the whole conversation again.
        """
        before = self._template_ids(_PROBE, add_generation_prompt=True)
        after = self._template_ids((*_PROBE, _REPLY, _FOLLOW_UP), add_generation_prompt=True)
        return after[: len(before)] == before

    def describe(self, prompt: str | tuple[Message, ...]) -> str:
        """One rendered example and its way back, in a few lines: text, ids, decoded ids, end tokens."""
        ids = self.render(prompt)
        text = prompt if isinstance(prompt, str) else self.render_text(prompt)
        back = self.decode(ids, skip_special_tokens=False)
        shown = " ".join(map(str, ids[:24])) + (f" ... ({len(ids)} ids)" if len(ids) > 24 else "")
        ends = ", ".join(
            f"{self.decode([index], skip_special_tokens=False)!r} = {index}" for index in self.end_ids
        )
        same = "the same text" if back == text else f"a different text: {back!r}"
        return f"text      {text!r}\nids       {shown}\nway back  {same}\nends at   {ends}"

    def save(self, folder: Path) -> None:
        """Write the tokenizer's files, the chat template in use among them."""
        self.backend.save_pretrained(folder)

    def _apply(self, messages: tuple[Message, ...], **options: Any) -> Any:
        if not self.backend.chat_template:
            raise ModelError(
                f"{self.place}: chat_template = None: expected a template to render messages with; set "
                "model.chat_template to a Jinja file, use an instruction-tuned model, or feed plain text "
                "with data.prompt_format=raw"
            )
        conversation = [{"role": message.role, "content": message.content} for message in messages]
        try:
            return self.backend.apply_chat_template(conversation, return_dict=False, **options)
        except (TemplateError, TypeError, KeyError) as error:
            roles = [message.role for message in messages]
            raise ModelError(
                f"{self.place}: chat_template: expected to render the roles {roles}, but it said {error!s}"
            ) from error

    def _template_ids(self, messages: tuple[Message, ...], *, add_generation_prompt: bool) -> tuple[int, ...]:
        return tuple(self._apply(messages, tokenize=True, add_generation_prompt=add_generation_prompt))

    def _findings(self) -> list[str]:
        if not self.has_chat_template:
            return ["no chat template: prompts must be plain text (data.prompt_format=raw)"]
        try:
            text, ids = self.render_text(_PROBE), self.render(_PROBE)
            thought = Message(role="assistant", content="<think>\nDelta\n</think>\n\nBeta.")
            history = self.render_text((*_PROBE, thought, _FOLLOW_UP))
            stable = self.is_prefix_stable()
        except ModelError as error:
            return [f"the chat template does not render a plain conversation: {error}"]
        found = []
        bos = self.backend.bos_token_id
        if bos is not None and list(ids[:2]) == [bos, bos]:
            found.append(
                f"the chat template puts {self.backend.bos_token} in front twice; the model has seen it once"
            )
        if "Delta" not in history:
            found.append(
                "the chat template drops <think> blocks from earlier turns: several turns are trained on "
                "other ids than were sampled unless ids are appended rather than rendered again"
            )
        if text.rstrip().endswith("<think>"):
            found.append(
                "the generation prompt opens a <think> block: completions hold only its end, </think>"
            )
        if not stable:
            found.append(
                "the chat template rewrites earlier turns when the conversation grows (not prefix-stable)"
            )
        if "strftime_now" in str(self.backend.chat_template):
            found.append("the chat template writes today's date into the prompt: runs differ from day to day")
        if self.decode(ids, skip_special_tokens=False) != text:
            found.append("decoding a rendered prompt does not give its text back exactly")
        return found


def _template_text(chat_template: str, place: str) -> str:
    """A template given inline, or the contents of the file it names."""
    if "{%" in chat_template or "{{" in chat_template:
        return chat_template
    try:
        return Path(chat_template).expanduser().read_text(encoding="utf-8")
    except OSError as error:
        raise ModelError(
            f"{place}: model.chat_template = {chat_template!r}: expected a Jinja template or the path of one "
            f"({error.strerror or error})"
        ) from error


def _model_end_ids(folder: Path) -> list[int]:
    """End tokens of `generation_config.json`; those of `config.json` where it names none."""
    for name in ("generation_config.json", "config.json"):
        try:
            named = json.loads((folder / name).read_text(encoding="utf-8")).get("eos_token_id")
        except (OSError, ValueError, AttributeError):
            continue
        if named is not None:
            return [int(index) for index in (named if isinstance(named, list) else [named])]
    return []


def load_tokenizer(
    source: str | Path,
    *,
    revision: str | None = None,
    trust_remote_code: bool = False,
    chat_template: str | None = None,
) -> HFTokenizer:
    """The tokenizer of a folder or hub id; weights are not touched.

    Args:
        source: A catalogue name, a folder or a hub id.
        revision: Hub revision.
        trust_remote_code: Run Python code that comes with the model.
        chat_template: A Jinja template, or the path of one, in place of the tokenizer's own.

    Raises:
        ModelError: there is no tokenizer there, or it does not fit the model.
    """
    place = str(source)
    template = _template_text(chat_template, place) if chat_template is not None else None
    folder = resolve(source, revision=revision, trust_remote_code=trust_remote_code, weights=False)
    if not any((folder / name).exists() for name in TOKENIZER_FILES):
        raise ModelError(
            f"{folder}: expected a tokenizer ({', '.join(TOKENIZER_FILES)}); copy the base model's tokenizer "
            "files into the folder"
        )
    try:
        backend = AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code)
    except Exception as error:  # the Rust backend raises bare exceptions for a damaged tokenizer.json
        raise ModelError(f"{folder}: expected a readable tokenizer, but: {error}") from error
    if template is not None:
        backend.chat_template = template
    return HFTokenizer(backend, model_end_ids=_model_end_ids(folder), place=place)


TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "tokenizer_config.json", "spiece.model")
