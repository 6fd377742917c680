"""Anyone's Python function as a verifier.

The native form: a function that names what it wants, from `NAMES`, from the columns of the data, or from the
`options` of the configuration; called once per attempt, sync or async; it returns a number, True or False,
None to abstain, a dict with a "score", or a `Verdict`. Functions written for other trainers are recognised by
their signature and run unchanged: see `adapters.py`.
"""

import asyncio
import importlib
import importlib.util
import inspect
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from numbers import Real
from pathlib import Path
from typing import Any, Literal

from peira.errors import ConfigError, VerifierError
from peira.types.task import Task
from peira.types.verdict import Attempt, Verdict, VerdictStatus
from peira.verifiers.adapters import Form, arguments_for, detect

FormName = Literal["auto", "native", "native_batch", "trl", "verl", "openrlhf", "verifiers"]


@dataclass(frozen=True, kw_only=True)
class FunctionVerifier:
    """Calls a function for each attempt and turns what it returns into a verdict.

    Functions of batches are called with lists of one: a verdict never depends on what else is in the batch.
    """

    ref: str
    """`path/to/file.py:function` or `package.module:function`."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Passed by name, when the function asks for them."""
    form: FormName = "auto"
    """Whose calling convention; auto recognises it by the signature."""
    range: tuple[float, float] = (0.0, 1.0)
    """Smallest and largest number the function returns; mapped onto scores from 0 to 1."""

    def __post_init__(self) -> None:
        low, high = self.range
        if not low < high:
            raise ConfigError(
                f"verifiers: {self.ref}: range = {self.range}: expected [low, high] with low < high"
            )

    def prepare(self) -> None:
        """Import the function, and refuse options it would never see.

        Raises:
            ConfigError: there is no such function, or nothing takes one of the options.
        """
        form = self._form()
        for name in self.options:
            if not form.takes(name):
                raise ConfigError(
                    f"verifiers: {self.ref}: options.{name}: the function has no such argument; "
                    f"it takes {', '.join(form.parameters) or 'none'}"
                )

    def describe(self) -> str:
        """One line: where the function is and how it is called."""
        return f"{self.ref}: {self._form().describe()}"

    def trial(self, task: Task, attempt: Attempt) -> str:
        """`describe`, and what one call gives: shown before training, so that nobody guesses."""
        verdict = self.verify(task, attempt)
        said = f"score {verdict.score:g}" if verdict.score is not None else verdict.status.value
        parts = "".join(f", {name} {value:g}" for name, value in verdict.parts.items())
        return f"{self.describe()}; on task {task.id!r}: {said}{parts}"

    def verify(self, task: Task, attempt: Attempt) -> Verdict:
        """Judge one attempt.

        Raises:
            VerifierError: the function returned something that is not a score. What it raises passes through.
        """
        function, form = load_function(self.ref), self._form()
        problem: Exception | None = None
        for as_messages in form.shapes(task):
            positional, named = arguments_for(form, task, attempt, self.options, as_messages=as_messages)
            try:
                value = function(*positional, **named)
                if inspect.isawaitable(value):
                    value = asyncio.run(_finished(value))
            except (TypeError, AttributeError, KeyError, IndexError) as error:
                problem = problem or error  # it may have expected text for messages, or the reverse
                continue
            return self._verdict(value, form)
        assert problem is not None
        raise problem

    def _form(self) -> Form:
        return _detected(self.ref, self.form)

    def _verdict(self, value: Any, form: Form) -> Verdict:
        if form.batched:
            value = _only(value, self.ref)
        if value is None:
            return Verdict.broken(VerdictStatus.ABSTAIN, "the function returned None")
        if isinstance(value, Verdict):
            return value
        parts: dict[str, float] = {}
        steps: tuple[float, ...] = ()
        detail = ""
        if isinstance(value, Mapping) or (hasattr(value, "score") and not isinstance(value, Real)):
            fields = value if isinstance(value, Mapping) else vars(value)
            if "score" not in fields:
                raise VerifierError(f"{self.ref} returned {value!r:.80}: expected a 'score' in it")
            detail = str(fields.get("detail", fields.get("reason", "")))
            steps = tuple(_number(step, self.ref) for step in fields.get("step_scores", ()))
            named = {**fields, **fields["parts"]} if isinstance(fields.get("parts"), Mapping) else fields
            parts = {
                str(name): float(part)
                for name, part in named.items()
                if name != "score" and isinstance(part, Real) and math.isfinite(part)
            }
            value = fields["score"]
            if value is None:
                return Verdict.broken(VerdictStatus.ABSTAIN, detail or "the function returned no score")
        number = _number(value, self.ref)
        low, high = self.range
        if not low <= number <= high:
            raise VerifierError(
                f"{self.ref} returned {number:g}: expected a number from {low:g} to {high:g}; "
                "set `range: [low, high]` of this verifier to what the function can return"
            )
        return Verdict(score=(number - low) / (high - low), detail=detail, parts=parts, step_scores=steps)


async def _finished(value: Any) -> Any:
    return await value


def _only(value: Any, ref: str) -> Any:
    """The one result of a batch of one."""
    if isinstance(value, Mapping) and "rewards" in value:
        rewards, rest = value["rewards"], {k: v for k, v in value.items() if k != "rewards"}
        extra = rest.get("extra_logs", {})
        logs = {str(k): _first(v) for k, v in extra.items()} if isinstance(extra, Mapping) else {}
        return {**logs, "score": _first(rewards)}
    if isinstance(value, str) or not (isinstance(value, Sequence) or hasattr(value, "tolist")):
        raise VerifierError(f"{ref} returned {value!r:.80}: expected a list with one score per completion")
    items = value.tolist() if hasattr(value, "tolist") else list(value)
    if not isinstance(items, list) or len(items) != 1:
        raise VerifierError(
            f"{ref} returned {value!r:.80}: expected a list of one score, as it got one completion"
        )
    return items[0]


def _first(value: Any) -> Any:
    items = value.tolist() if hasattr(value, "tolist") else value
    return items[0] if isinstance(items, list | tuple) and len(items) == 1 else items


def _number(value: Any, ref: str) -> float:
    if hasattr(value, "item") and not isinstance(value, Real):  # numpy and torch scalars
        value = value.item()
    if not isinstance(value, Real) or not math.isfinite(value):
        raise VerifierError(
            f"{ref} returned {value!r:.80}: expected a finite number, True, False, None or a Verdict"
        )
    return float(value)


def _detected(ref: str, form: FormName) -> Form:
    return detect(load_function(ref), None if form == "auto" else form, ref)


def load_function(ref: str) -> Callable[..., Any]:
    """The function that a reference names; a file is run once.

    Raises:
        ConfigError: the reference is malformed, or its file, module or function does not exist.
    """
    return _loaded(ref, str(Path.cwd()))


@cache
def _loaded(ref: str, folder: str) -> Callable[..., Any]:
    """The function, as seen from a folder: references to files may be relative."""
    place, _, name = ref.rpartition(":")
    if not place or not name:
        raise ConfigError(
            f"verifiers: ref = {ref!r}: expected 'path/to/file.py:function' or 'package.module:function'"
        )
    module = _from_file(Path(place), ref) if place.endswith(".py") else _from_package(place, ref)
    function = module
    for part in name.split("."):
        if not hasattr(function, part):
            known = [
                key for key, value in vars(module).items() if callable(value) and not key.startswith("_")
            ]
            nearest = get_close_matches(part, known, n=1)
            hint = (
                f"did you mean {nearest[0]!r}?" if nearest else f"it has {', '.join(known) or 'no functions'}"
            )
            raise ConfigError(f"verifiers: ref = {ref!r}: there is no {part!r} in {place}; {hint}")
        function = getattr(function, part)
    if not callable(function):
        raise ConfigError(
            f"verifiers: ref = {ref!r}: {name!r} is not a function but {type(function).__name__}"
        )
    found: Callable[..., Any] = function
    return found


def _from_file(path: Path, ref: str) -> Any:
    path = path.expanduser()
    if not path.is_file():
        raise ConfigError(f"verifiers: ref = {ref!r}: there is no file {path} (looked from {Path.cwd()})")
    name = f"peira_function_{path.stem}_{abs(hash(str(path.resolve()))):x}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.resolve().parent))  # so that it can import its neighbours
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise ConfigError(f"verifiers: ref = {ref!r}: importing {path} raised {error!r}") from error
    finally:
        sys.path.remove(str(path.resolve().parent))
    return module


def _from_package(place: str, ref: str) -> Any:
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"verifiers: ref = {ref!r}: there is no module {error.name!r}; for a file write its path with .py"
        ) from error
    except (Exception, SystemExit) as error:
        raise ConfigError(f"verifiers: ref = {ref!r}: importing {place} raised {error!r}") from error
