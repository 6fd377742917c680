"""Which columns of a dataset are the prompt, the answer and the rest."""

import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from peira.data.prompt import PromptStyle
from peira.data.rows import Row, first_line, nearest, shown
from peira.errors import ConfigError, DataError
from peira.types.task import Message, Task

PROMPTS = ("prompt", "question", "problem", "messages", "input", "context_messages")
ANSWERS = (
    "answer",
    "reward_model.ground_truth",
    "reward_spec.ground_truth",
    "extra_env_info.ground_truth",
    "ground_truth",
    "label",
    "solution",
)
_SOURCES = ("data_source", "dataset")
BOXED = "boxed"
_BOX = re.compile(r"\\(?:boxed|fbox)\s*(?:\{|([^{\s]))")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_WORKED_SOLUTION = re.compile(r"^#### *(\S.*?)\s*\Z", re.MULTILINE)
_ROLES_BEFORE_THE_POLICY = ("user", "tool")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How the rows of one dataset become tasks: decided on the first rows, said in words, held for all rows.

    Column names may be dotted paths into nested columns.

    Example:
        >>> row = Row(place="a.jsonl: line 1", values={"question": "1 + 1 = ?", "label": 2, "level": 1})
        >>> reading = Reading.choose([row])
        >>> print(reading.describe())
        prompt from `question`, answer from `label`; `level` kept in task.info
        >>> reading.task(row, PromptStyle(), source="mine").answer
        2
    """

    prompt: str
    answer: str | None = None
    verifier: str | None = None
    id: str | None = None
    info: str | None = None
    source: str | None = None
    layout: str = ""
    """Whose layout it is, where the columns tell."""
    answer_pattern: str | None = None
    others: tuple[str, ...] = ()
    """Columns that reach verifiers by name."""
    passed_over: Mapping[str, str] = field(default_factory=dict)
    """Columns that could have been read otherwise, and what they could have been."""

    @classmethod
    def choose(
        cls,
        rows: Sequence[Row],
        columns: Mapping[str, str] | None = None,
        answer_pattern: str | None = None,
    ) -> "Reading":
        """Decide by the names in the first rows; `columns` (our name -> column name) goes before any guess.

        Raises:
            ConfigError: `columns` names a column that is not there, or `answer_pattern` is no expression.
            DataError: no column can be the prompt.
        """
        columns = columns or {}
        place, values = rows[0].place, _merged([row.values for row in rows])
        for ours, name in columns.items():
            if not _has(values, name):
                raise ConfigError(
                    f"{place}: columns.{ours} = {name!r}: expected a column of the data"
                    f"{nearest(name, values)}; columns: {', '.join(map(str, values))}"
                )
        prompts = [name for name in PROMPTS if _has(values, name)]
        answers = [name for name in ANSWERS if _has(values, name)]
        prompt = columns.get("prompt") or (prompts[0] if prompts else None)
        if prompt is None:
            raise DataError(
                f"{place}: columns = {', '.join(map(str, values)) or 'none'}: expected one of "
                f"{', '.join(PROMPTS)}; name yours with columns: {{prompt: COLUMN}}"
            )
        answer = columns.get("answer") or next((name for name in answers if name != prompt), None)
        layout = _layout(values)
        sources = _SOURCES if layout in ("verl", "open-instruct", "SkyRL") else ()
        chosen = {
            "verifier": columns.get("verifier") or _text_column(values, "verifier"),
            "id": columns.get("id") or ("id" if _has(values, "id") else None),
            "info": columns.get("info") or ("info" if _info_column(values) else None),
            "source": columns.get("source") or next((n for n in sources if _text_column(values, n)), None),
        }
        used = {prompt, *chosen.values()} | ({answer} if answer else set())
        candidates = {n: "the prompt" for n in prompts} | {n: "the answer" for n in answers}
        if answer_pattern is None and answer is not None and _is_worked_solution(_get(values, answer)):
            answer_pattern = _WORKED_SOLUTION.pattern
        if answer_pattern is not None and answer_pattern != BOXED:
            _compiled(answer_pattern)
        return cls(
            prompt=prompt,
            answer=answer,
            **chosen,
            layout=layout,
            answer_pattern=answer_pattern,
            others=tuple(name for name in values if name not in used),
            passed_over={name: what for name, what in candidates.items() if name not in used},
        )

    def describe(self) -> str:
        """The reading in words, for a person who wants to know what was understood."""
        parts = [f"prompt from `{self.prompt}`"]
        parts.append(f"answer from `{self.answer}`" if self.answer else "no answer")
        if self.answer_pattern == _WORKED_SOLUTION.pattern:
            parts[-1] += " (the text after its last ####)"
        elif self.answer_pattern == BOXED:
            parts[-1] += r" (its last \boxed{})"
        elif self.answer_pattern is not None:
            parts[-1] += f" (the last match of {self.answer_pattern})"
        for name in ("verifier", "id", "info", "source"):
            if column := getattr(self, name):
                parts.append(f"{name} from `{column}`")
        text = (f"{self.layout} layout: " if self.layout else "") + ", ".join(parts)
        for name, what in self.passed_over.items():
            text += f"; `{name}` could be {what} too and was not taken"
        rest = [name for name in self.others if name not in self.passed_over]
        if rest:
            text += f"; {', '.join(f'`{name}`' for name in rest)} kept in task.info"
        return text

    def task(self, row: Row, style: PromptStyle, *, source: str, verifier: str | None = None) -> Task:
        """One row as a task. Without an `id` column, `id` is left empty for the source to fill.

        Raises:
            DataError: a value that cannot be what this reading takes it for; names row, column and value.
        """
        values = row.values
        raw, used = self._prompt(row), self._used
        info = {name: plain(value) for name, value in values.items() if name not in used}
        if self.info is not None:
            info |= self._info(row)
        answer = None if self.answer is None else self._answer(row)
        return Task(
            id=self._id(row),
            prompt=style.render(raw, values, row.place),
            answer=answer,
            verifier=verifier or self._label(row, self.verifier),
            info=info,
            source=self._label(row, self.source) or source,
        )

    def raw_prompt(self, row: Row) -> str | tuple[Message, ...]:
        """The prompt as the data has it, before system prompt and template: what tells duplicates."""
        return self._prompt(row)

    @property
    def _used(self) -> tuple[str | None, ...]:
        """Columns that are not repeated in `info`; an answer taken out of its column leaves the rest."""
        whole = (self.answer,) if self.answer_pattern is None else ()
        return (self.prompt, self.verifier, self.id, self.info, *whole)

    def _prompt(self, row: Row) -> str | tuple[Message, ...]:
        value = self._require(row, self.prompt)
        place = f"{row.place}, column {self.prompt!r}"
        if isinstance(value, str):
            return _checked_text(place, value)
        if not isinstance(value, list | tuple) or not value:
            raise DataError(
                f"{place} = {shown(value)}: expected a text, or a list of messages with role and content"
            )
        messages = tuple(_message(f"{place}, message {i}", item) for i, item in enumerate(value))
        if messages[-1].role not in _ROLES_BEFORE_THE_POLICY:
            raise DataError(
                f"{place}: the last message has the role {messages[-1].role!r}: expected 'user', since "
                "the policy speaks next; remove the closing message, or name another prompt with "
                "columns: {prompt: COLUMN}"
            )
        return messages

    def _answer(self, row: Row) -> Any:
        assert self.answer is not None
        value = plain(_get(row.values, self.answer)) if _has(row.values, self.answer) else None
        if isinstance(value, float) and value != value:
            return None
        place = f"{row.place}, column {self.answer!r}"
        if isinstance(value, str):
            _checked_characters(place, value)
        if self.answer_pattern is None or value is None:
            return value
        if not isinstance(value, str):
            raise DataError(f"{place} = {shown(value)}: expected a text, since answer_pattern reads it")
        found = _last_box(value) if self.answer_pattern == BOXED else _last_match(self.answer_pattern, value)
        if found is None:
            raise DataError(
                f"{place} = {shown(value)}: expected a match of {self.answer_pattern!r}; "
                "correct the row or give another answer_pattern"
            )
        return found

    def _id(self, row: Row) -> str:
        if self.id is None or not _has(row.values, self.id):
            return ""
        value = _get(row.values, self.id)
        if isinstance(value, bool) or not isinstance(value, str | int | None):
            raise DataError(
                f"{row.place}, column {self.id!r} = {shown(value)}: expected a text or a whole number"
            )
        return "" if value is None else _checked_characters(f"{row.place}, column {self.id!r}", str(value))

    def _info(self, row: Row) -> dict[str, Any]:
        assert self.info is not None
        value = _get(row.values, self.info) if _has(row.values, self.info) else None
        if isinstance(value, str) and value:
            try:
                value = json.loads(value)
            except ValueError as error:
                raise DataError(
                    f"{row.place}, column {self.info!r} = {shown(value)}: expected an object, or its JSON "
                    f"({first_line(error)})"
                ) from error
        if value is not None and not isinstance(value, Mapping):
            raise DataError(f"{row.place}, column {self.info!r} = {shown(value)}: expected an object")
        return {str(name): plain(item) for name, item in (value or {}).items()}

    def _label(self, row: Row, column: str | None) -> str | None:
        if column is None or not _has(row.values, column):
            return None
        value = _get(row.values, column)
        if value is not None and not isinstance(value, str):
            raise DataError(f"{row.place}, column {column!r} = {shown(value)}: expected a name")
        return value or None

    def _require(self, row: Row, column: str) -> Any:
        if not _has(row.values, column):
            columns = ", ".join(map(str, row.values)) or "no columns"
            raise DataError(
                f"{row.place}: no column {column!r}: expected it in every row"
                f"{nearest(column, row.values)}; the row has {columns}"
            )
        value = _get(row.values, column)
        if value is None:
            raise DataError(
                f"{row.place}, column {column!r} = null: expected a value; fill it in or delete the row"
            )
        return value


def plain(value: Any) -> Any:
    """A stored value in JSON's forms: dates as ISO text, bytes as base64, other objects as text."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case datetime() | date() | time():
            return value.isoformat()
        case bytes():
            return b64encode(value).decode()
        case Decimal():
            return str(value)
        case _:
            return str(value)


def _layout(values: Mapping[str, Any]) -> str:
    if _has(values, "reward_model.ground_truth"):
        return "verl"
    if _has(values, "reward_spec.ground_truth"):
        return "SkyRL"
    if _has(values, "extra_env_info.ground_truth"):
        return "NeMo-RL"
    if _has(values, "messages") and _has(values, "ground_truth"):
        return "open-instruct"
    if _has(values, "prompt") and _has(values, "solution"):
        return "TRL"
    if (_has(values, "input") or _has(values, "context_messages")) and _has(values, "label"):
        return "OpenRLHF"
    if _has(values, "answer") and _info_column(values):
        return "verifiers"
    return ""


def _merged(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Each column with the first value that is not null, so that one odd row does not decide for all."""
    values: dict[str, Any] = {}
    for row in rows:
        for name, value in row.items():
            if values.get(name) is None:
                values[name] = value
    return values


def _text_column(values: Mapping[str, Any], name: str) -> str | None:
    return name if isinstance(values.get(name), str) else None


def _info_column(values: Mapping[str, Any]) -> bool:
    value = values.get("info")
    return isinstance(value, Mapping) or (isinstance(value, str) and value.lstrip().startswith("{"))


def _is_worked_solution(value: Any) -> bool:
    return isinstance(value, str) and _WORKED_SOLUTION.search(value) is not None


def _last_match(pattern: str, text: str) -> str | None:
    found = list(_compiled(pattern).finditer(text))
    return found[-1].group(1 if found[-1].re.groups else 0) if found else None


def _last_box(text: str) -> str | None:
    """Content of the last complete box, its braces balanced; a box without braces holds one character."""
    for opened in reversed(list(_BOX.finditer(text))):
        if opened[1] is not None:
            return opened[1]
        depth = 1
        for brace in _BRACE.finditer(text, opened.end()):
            depth += {"{": 1, "}": -1}.get(brace.group(), 0)
            if depth == 0:
                return text[opened.end() : brace.start()].strip()
    return None


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern, re.MULTILINE)
    except re.error as error:
        raise ConfigError(f"answer_pattern = {pattern!r}: expected a regular expression ({error})") from error


def _has(values: Mapping[str, Any], path: str) -> bool:
    if path in values:
        return True
    head, _, rest = path.partition(".")
    inner = values.get(head)
    return bool(rest) and isinstance(inner, Mapping) and _has(inner, rest)


def _get(values: Mapping[str, Any], path: str) -> Any:
    if path in values:
        return values[path]
    head, _, rest = path.partition(".")
    return _get(values[head], rest)


def _message(place: str, value: Any) -> Message:
    if not isinstance(value, Mapping) or not isinstance(value.get("role"), str):
        raise DataError(f"{place} = {shown(value)}: expected an object with role and content")
    content = value.get("content")
    if isinstance(content, list | tuple):
        content = "".join(_part(f"{place}, part {i}", part) for i, part in enumerate(content))
    if value.get("tool_calls"):
        raise DataError(f"{place}: tool_calls = {shown(value['tool_calls'])}: expected text messages only")
    if not isinstance(content, str):
        raise DataError(f"{place}, content = {shown(content)}: expected a text")
    if value["role"] in _ROLES_BEFORE_THE_POLICY:
        _checked_text(place, content)
    return Message(role=value["role"], content=_checked_characters(place, content))


def _part(place: str, value: Any) -> str:
    text = value.get("text") if isinstance(value, Mapping) else value
    if not isinstance(text, str):
        kind = value.get("type") if isinstance(value, Mapping) else None
        raise DataError(f"{place}: type = {shown(kind)}: expected text; images and other media are not read")
    return text


def _checked_text(place: str, text: str) -> str:
    if not text.strip():
        raise DataError(
            f"{place} = {text!r}: expected a text with something in it; fill it in or delete the row"
        )
    return _checked_characters(place, text)


def _checked_characters(place: str, text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"{place}: half of a surrogate pair at character {error.start + 1}: expected whole characters"
        ) from error
    return text
