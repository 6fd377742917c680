"""Where tasks come from and in which order."""

from string import Formatter
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from peira.config.section import Section

COLUMNS = ("prompt", "answer", "verifier", "id", "info", "source")
"""What a column can be read as; any other column reaches verifiers by its own name."""
_GENERATED_ONLY = ("seed", "options")
_STORED_ONLY = ("split", "subset", "columns", "answer_pattern")


class SourceConfig(Section):
    """One dataset: a file, a folder, a hub id, or a procedural family."""

    shorthand: ClassVar[str | None] = "path"

    path: str = Field(min_length=1)
    """`file.jsonl`, `file.parquet`, a dataset folder, a hub id, `reasoning_gym:NAME`, `synthetic:NAME` or
    `theorems:NAME`."""
    name: str = ""
    """In metrics by source; the last part of the path when empty."""
    split: str = "train"
    """Of a hub dataset or dataset folder."""
    subset: str | None = None
    """Configuration name of a hub dataset."""
    weight: float = Field(default=1.0, gt=0)
    """Share of draws in a mixture, relative to the other sources."""
    size: int | None = Field(default=None, ge=1)
    """Use the first so many rows; procedural families generate as many (500 unless told)."""
    seed: int = 0
    """Of a procedural family's generator."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Passed to a procedural family's generator."""
    columns: dict[str, str] = Field(default_factory=dict)
    """Our name -> column name (dots reach into nested columns), where the reading chosen by itself is not
    the one wanted. Our names: prompt, answer, verifier, id, info, source."""
    answer_pattern: str | None = None
    """Regular expression whose last match in the answer column is the answer (its group 1 when it has one),
    or `boxed` for the content of the last \\boxed{}. None keeps the column as it is, except that of a worked
    solution ending in `#### X` the X is taken."""
    verifier: str | None = None
    """Name of the verifier that judges this source's tasks; None leaves it to the rows or to all."""

    @property
    def generated(self) -> bool:
        """Whether a procedural family makes the tasks."""
        return self.path.startswith(("reasoning_gym:", "synthetic:"))

    @model_validator(mode="after")
    def _nothing_ignored(self) -> "SourceConfig":
        # Values count, not whether they were written down: a resolved configuration states every default.
        for name in _STORED_ONLY if self.generated else _GENERATED_ONLY:
            if getattr(self, name) != type(self).model_fields[name].get_default(call_default_factory=True):
                kind = "a procedural family" if self.generated else "stored data"
                raise ValueError(
                    f"{name} = {getattr(self, name)!r}: no meaning for {kind} ({self.path}); leave it out"
                )
        unknown = sorted(set(self.columns) - set(COLUMNS))
        if unknown:
            raise ValueError(f"columns: {unknown[0]!r} is none of {', '.join(COLUMNS)}")
        return self


class CurriculumConfig(Section):
    """Draw tasks by their pass rate so far: those that are sometimes solved more often than the others."""

    explore: float = Field(default=0.2, gt=0, le=1)
    """Share of the weight that is spread evenly, so that no task is given up; 1 draws evenly."""
    memory: float = Field(default=0.5, ge=0, lt=1)
    """What is left of older evidence on a task each time it is drawn: the policy moves on."""


class DataConfig(Section):
    """Training tasks, held-out tasks, and how a row becomes a prompt."""

    shorthand: ClassVar[str | None] = "path"

    path: str | None = Field(default=None, min_length=1)
    """Short for one source."""
    sources: tuple[SourceConfig, ...] = ()
    """A mixture; draws follow the weights."""
    eval_path: str | None = Field(default=None, min_length=1)
    """Short for one held-out source."""
    eval_sources: tuple[SourceConfig, ...] = ()
    """Held-out tasks; when empty, a share of the training tasks is held out."""
    held_out_fraction: float = Field(default=0.1, ge=0, lt=1)
    """Share of tasks held out by content hash when no held-out source is given; 0 for none."""
    prompt_format: Literal["chat", "raw"] = "chat"
    """chat: a string prompt is one user message for the chat template; raw: the tokenizer gets it as is."""
    system_prompt: str | None = None
    """Put before every conversation that does not begin with a system message."""
    prompt_template: str | None = None
    """Text with `{prompt}` (and any column) that replaces a string prompt or the last user message.
    Braces that are meant as such are doubled: `\\boxed{{}}`."""
    shuffle: bool = True
    """A new order each epoch, fixed by the run's seed."""
    curriculum: CurriculumConfig | None = None
    """Draw by pass rate instead of epoch by epoch; `{}` for its defaults."""
    max_prompt_tokens: int | None = Field(default=None, ge=1)
    """Longer prompts follow `long_prompts`; None means the model's context minus `sampling.max_tokens`."""
    long_prompts: Literal["error", "drop"] = "error"
    """Prompts are never cut. drop: leave such tasks out and say how many."""
    duplicates: Literal["drop", "keep", "error"] = "drop"
    """Rows with equal prompt and answer; overlap of training with held-out tasks follows the same rule."""

    @property
    def train_sources(self) -> tuple[SourceConfig, ...]:
        """The training sources, however they were given."""
        return self.sources if self.path is None else (SourceConfig(path=self.path),)

    @property
    def held_out_sources(self) -> tuple[SourceConfig, ...]:
        """The held-out sources, however they were given; empty when a share of the training data is used."""
        return self.eval_sources if self.eval_path is None else (SourceConfig(path=self.eval_path),)

    @model_validator(mode="after")
    def _one_way_to_say_it(self) -> "DataConfig":
        if self.path is not None and self.sources:
            raise ValueError("path and sources are both given: keep one; `path: X` is short for one source")
        if self.path is None and not self.sources:
            raise ValueError(
                "neither path nor sources is given: name the training tasks, such as path: tasks.jsonl"
            )
        if self.eval_path is not None and self.eval_sources:
            raise ValueError("eval_path and eval_sources are both given: keep one")
        default = type(self).model_fields["held_out_fraction"].default
        if self.held_out_sources and self.held_out_fraction not in (0, default):
            raise ValueError(
                f"held_out_fraction = {self.held_out_fraction} and a held-out source are both given: "
                "the fraction would be ignored; keep one"
            )
        if self.prompt_format == "raw" and self.system_prompt is not None:
            raise ValueError(
                "system_prompt with prompt_format: raw: a raw prompt has no messages; "
                "put the text into prompt_template, or use prompt_format: chat"
            )
        return self

    @model_validator(mode="after")
    def _curriculum_decides_the_order(self) -> "DataConfig":
        if self.curriculum is not None and not self.shuffle:
            raise ValueError(
                "shuffle = False and a curriculum are both given: the curriculum decides the order; keep one"
            )
        return self

    @model_validator(mode="after")
    def _template_has_named_fields(self) -> "DataConfig":
        if self.prompt_template is None:
            return self
        hint = r"write braces that are meant as such twice: \boxed{{}}"
        try:
            fields = [name for _, name, _, _ in Formatter().parse(self.prompt_template) if name is not None]
        except ValueError as error:
            raise ValueError(f"prompt_template: {error}; {hint}") from error
        if any(not name.replace(".", "").replace("_", "").isalnum() or name[0].isdigit() for name in fields):
            raise ValueError(
                f"prompt_template: fields = {fields}: expected column names such as {{prompt}}; {hint}"
            )
        if not fields:
            raise ValueError(
                "prompt_template: no field such as {prompt}: every task would show the same text"
            )
        return self
