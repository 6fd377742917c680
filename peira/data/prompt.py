"""From a row's prompt to what the policy is shown: template, system prompt, chat or raw."""

from collections.abc import Mapping
from dataclasses import dataclass
from string import Formatter
from typing import Any

from peira.config.data import DataConfig
from peira.errors import ConfigError, DataError
from peira.types.task import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptStyle:
    """What is done to every prompt.

    Example:
        >>> style = PromptStyle(template="{prompt} Answer with a number.", system="Be brief.")
        >>> [message.content for message in style.render("1 + 1 = ?", {}, "mine.jsonl: line 1")]
        ['Be brief.', '1 + 1 = ? Answer with a number.']
    """

    raw: bool = False
    """String prompts stay strings, for the tokenizer as they are; otherwise each is one user message."""
    system: str | None = None
    template: str | None = None

    @classmethod
    def of(cls, config: DataConfig) -> "PromptStyle":
        """The style that the settings ask for."""
        return cls(
            raw=config.prompt_format == "raw", system=config.system_prompt, template=config.prompt_template
        )

    def render(
        self, prompt: str | tuple[Message, ...], columns: Mapping[str, Any], place: str
    ) -> str | tuple[Message, ...]:
        """The prompt of one task.

        Raises:
            ConfigError: the template has a field that the row lacks.
            DataError: messages where raw text was asked for.
        """
        if isinstance(prompt, str):
            text = self._filled(prompt, columns, place)
            if self.raw:
                return text
            messages: tuple[Message, ...] = (Message(role="user", content=text),)
        elif self.raw:
            raise DataError(
                f"{place}: the prompt is a list of messages, but data.prompt_format = 'raw': "
                "expected a text; use prompt_format: chat"
            )
        else:
            messages = self._in_last_user_message(prompt, columns, place)
        if self.system is not None and messages[0].role != "system":
            messages = (Message(role="system", content=self.system), *messages)
        return messages

    def _in_last_user_message(
        self, messages: tuple[Message, ...], columns: Mapping[str, Any], place: str
    ) -> tuple[Message, ...]:
        if self.template is None:
            return messages
        last = max((i for i, message in enumerate(messages) if message.role == "user"), default=None)
        if last is None:
            raise DataError(f"{place}: no user message: expected one for data.prompt_template to fill")
        text = self._filled(messages[last].content, columns, place)
        return (*messages[:last], Message(role="user", content=text), *messages[last + 1 :])

    def _filled(self, prompt: str, columns: Mapping[str, Any], place: str) -> str:
        if self.template is None:
            return prompt
        pieces = []
        for literal, name, _, _ in Formatter().parse(self.template):
            pieces.append(literal)
            if name is not None:
                pieces.append(prompt if name == "prompt" else str(self._column(name, columns, place)))
        return "".join(pieces)

    @staticmethod
    def _column(name: str, columns: Mapping[str, Any], place: str) -> Any:
        value: Any = columns
        for part in [name] if name in columns else name.split("."):
            if not isinstance(value, Mapping) or part not in value:
                raise ConfigError(
                    f"{place}: data.prompt_template = {{{name}}}: expected `prompt` or a column of the row; "
                    f"columns: {', '.join(map(str, columns)) or 'none'}; data.prompt_template=null shows "
                    "prompts as they are"
                )
            value = value[part]
        return value
