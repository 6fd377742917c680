"""How reward functions are called: our own form, and those of TRL, verl, OpenRLHF and verifiers.

native          anything else: called with the names of `NAMES`, columns and options that it asks for; returns
                a number, True, False, None, a dict with "score", or a Verdict
native_batch    `answers`, `infos` or `completions` without `**kwargs`: the same names in the plural, as lists
trl             `completions` with `**kwargs` or `prompts`: these and the columns as lists; returns a list
verl            `solution_str` and `ground_truth`: these with `data_source`, `extra_info`; returns a number
                or a dict with "score"
openrlhf        `queries` and `labels`: these with `prompts`, lists of text; returns a dict with "rewards"
verifiers       `parser`, or a completion annotated as messages: the native names, the completion as messages
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from peira.errors import ConfigError
from peira.types.rollout import StopReason
from peira.types.task import Task
from peira.types.verdict import Attempt
from peira.verifiers.answer import answer_tag, final_answer

NAMES = (
    "prompt",
    "completion",
    "answer",
    "info",
    "completion_ids",
    "finish_reason",
    "truncated",
    "state",
    "messages",
    "id",
    "source",
    "task",
    "attempt",
)
"""What a native function may ask for; any column of the data and any option besides."""
ANSWER_NAMES = ("answer", "ground_truth", "solution", "label", "target", "gold")
"""All of these give the task's answer, unless the data has a column of that name."""
_PLURAL = {
    "prompts": "prompt",
    "completions": "completion",
    "answers": "answer",
    "infos": "info",
    "finish_reasons": "finish_reason",
    "states": "state",
    "ids": "id",
    "sources": "source",
    "tasks": "task",
    "attempts": "attempt",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How one function is called."""

    name: str
    parameters: tuple[str, ...]
    """Those it names."""
    required: tuple[str, ...]
    """Those without a default."""
    open_ended: bool
    """Whether it takes `**kwargs`."""
    batched: bool
    messages_first: bool
    """Whether a conversation's completion is tried as messages before it is tried as text."""

    def takes(self, name: str) -> bool:
        """Whether an argument of this name reaches the function."""
        return self.open_ended or name in self.parameters

    def shapes(self, task: Task) -> Iterator[bool]:
        """Whether to pass messages (True) or text (False), in the order to try."""
        if self.name in ("verl", "openrlhf"):
            return iter((False,))
        if self.messages_first and not isinstance(task.prompt, str):
            return iter((True, False))
        return iter((False, True))

    def describe(self) -> str:
        """One line for a person."""
        arguments = ", ".join((*self.parameters, *(("**kwargs",) if self.open_ended else ())))
        how = "called with lists of one completion" if self.batched else "called once per completion"
        return f"{self.name} form ({arguments}), {how}"


def detect(function: Callable[..., Any], name: str | None, ref: str) -> Form:
    """Recognise a form by its signature, or take the one named.

    Raises:
        ConfigError: the function cannot be called by name.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"verifiers: ref = {ref!r}: its signature cannot be read ({error})") from error
    kinds = inspect.Parameter
    parameters = [
        p for p in signature.parameters.values() if p.kind not in (kinds.VAR_KEYWORD, kinds.VAR_POSITIONAL)
    ]
    names = tuple(p.name for p in parameters)
    if any(p.kind is kinds.POSITIONAL_ONLY and p.default is kinds.empty for p in parameters):
        raise ConfigError(
            f"verifiers: ref = {ref!r}: expected arguments that can be passed by name, not {signature}"
        )
    open_ended = any(p.kind is kinds.VAR_KEYWORD for p in signature.parameters.values())
    annotation = str(signature.parameters["completion"].annotation) if "completion" in names else ""
    if name is None:
        if "solution_str" in names and "ground_truth" in names:
            name = "verl"
        elif "queries" in names and ("labels" in names or "prompts" in names):
            name = "openrlhf"
        elif "completions" in names and (open_ended or "prompts" in names):
            name = "trl"
        elif set(names) & set(_PLURAL):
            name = "native_batch"
        elif "parser" in names or "Messages" in annotation or "list" in annotation.lower():
            name = "verifiers"
        else:
            name = "native"
    return Form(
        name=name,
        parameters=names,
        required=tuple(p.name for p in parameters if p.default is kinds.empty),
        open_ended=open_ended,
        batched=name in ("native_batch", "trl", "openrlhf"),
        messages_first=name in ("trl", "verifiers"),
    )


def arguments_for(
    form: Form, task: Task, attempt: Attempt, options: Mapping[str, Any], *, as_messages: bool
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and named arguments for one attempt.

    Raises:
        ConfigError: the function requires a name that neither we nor the data nor the options have.
    """
    values = _values(task, attempt, as_messages=as_messages)
    match form.name:
        case "verl":
            extra = task.info.get("extra_info", dict(task.info))
            available: dict[str, Any] = {
                "data_source": task.info.get("data_source", task.source),
                "solution_str": attempt.text,
                "ground_truth": task.answer,
                "extra_info": extra,
            }
        case "openrlhf":
            prompt = _text_of(task)
            available = {"queries": [prompt + attempt.text], "prompts": [prompt], "labels": [task.answer]}
        case "trl":
            columns = {name: [value] for name, value in values.items() if name not in _NOT_COLUMNS}
            available = {
                **columns,
                "prompts": [values["prompt"]],
                "completions": [values["completion"]],
                "completion_ids": [list(attempt.token_ids)],
                "trainer_state": None,
                "log_extra": _nothing,
                "log_metric": _nothing,
            }
        case "native_batch":
            available = {name: [value] for name, value in values.items()}
            available |= {plural: [values[singular]] for plural, singular in _PLURAL.items()}
        case _:
            available = values if form.name == "native" else {**values, "parser": _Parser()}
    available = {**available, **options}
    missing = [name for name in form.required if name not in available]
    if missing:
        raise ConfigError(
            f"the function asks for {missing[0]!r}: there is only {', '.join(sorted(map(str, available)))}; "
            "a column of the data, or an option of the verifier, of that name reaches it too"
        )
    if form.open_ended:
        return (), available
    return (), {name: available[name] for name in form.parameters if name in available}


_NOT_COLUMNS = {"prompt", "completion", "task", "attempt", "messages", "state", "completion_ids"}


def _values(task: Task, attempt: Attempt, *, as_messages: bool) -> dict[str, Any]:
    prompt: Any = task.prompt
    if not isinstance(prompt, str):
        prompt = (
            [{"role": message.role, "content": message.content} for message in prompt]
            if as_messages
            else _text_of(task)
        )
    completion: Any = [{"role": "assistant", "content": attempt.text}] if as_messages else attempt.text
    return {
        **{name: task.answer for name in ANSWER_NAMES},
        **task.info,
        "prompt": prompt,
        "completion": completion,
        "answer": task.answer,
        "info": dict(task.info),
        "completion_ids": list(attempt.token_ids),
        "finish_reason": attempt.stop_reason.value,
        "truncated": attempt.stop_reason in (StopReason.LENGTH, StopReason.ABORT),
        "state": dict(attempt.state),
        "messages": [{"role": m.role, "content": m.content} for m in attempt.messages],
        "id": task.id,
        "source": task.source,
        "task": task,
        "attempt": attempt,
    }


def _text_of(task: Task) -> str:
    if isinstance(task.prompt, str):
        return task.prompt
    return "\n\n".join(message.content for message in task.prompt)


def _nothing(*_: object, **__: object) -> None:
    """Stand-in for the logging callbacks that TRL hands to reward functions."""


class _Parser:
    """The part of the verifiers library's parser that reward functions use."""

    def parse(self, text: str) -> str:
        return text

    def parse_answer(self, completion: Any) -> str | None:
        text = completion if isinstance(completion, str) else completion[-1]["content"]
        return answer_tag(text) or final_answer(text)
