"""Where tasks come from and in which order."""

from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from peira.config.section import Section


class SourceConfig(Section):
    """One dataset: a file, a folder, a hub id, or a procedural family."""

    shorthand: ClassVar[str | None] = "path"

    path: str
    """`file.jsonl`, `file.parquet`, a dataset folder, a hub id, or `reasoning_gym:NAME`."""
    split: str = "train"
    """Of a hub dataset or dataset folder."""
    subset: str | None = None
    """Configuration name of a hub dataset."""
    weight: float = Field(default=1.0, gt=0)
    """Share of draws in a mixture, relative to the other sources."""
    size: int | None = Field(default=None, ge=1)
    """Use this many rows; procedural families generate as many (500 unless told)."""
    seed: int = 0
    """Of a procedural family's generator."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Passed to a procedural family's generator."""
    columns: dict[str, str] = Field(default_factory=dict)
    """Our name -> column name, where the reading chosen by itself is not the one wanted."""
    verifier: str | None = None
    """Name of the verifier that judges this source's tasks; None leaves it to the rows or to all."""


class DataConfig(Section):
    """Training tasks, held-out tasks, and how a row becomes a prompt."""

    shorthand: ClassVar[str | None] = "path"

    path: str | None = None
    """Short for one source."""
    sources: tuple[SourceConfig, ...] = ()
    """A mixture; draws follow the weights."""
    eval_path: str | None = None
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
    """Text with `{prompt}` (and any column) that replaces a string prompt or the last user message."""
    shuffle: bool = True
    """A new order each epoch, fixed by the run's seed."""
    max_prompt_tokens: int | None = Field(default=None, ge=1)
    """Longer prompts follow `long_prompts`; None means the model's context minus `sampling.max_tokens`."""
    long_prompts: Literal["error", "drop"] = "error"
    """Prompts are never cut. drop: leave such tasks out and say how many."""
    duplicates: Literal["drop", "keep", "error"] = "drop"
    """Rows with equal prompt and answer; overlap of training with held-out tasks follows the same rule."""

    @model_validator(mode="after")
    def _one_way_to_say_it(self) -> "DataConfig":
        if self.path is not None and self.sources:
            raise ValueError("path and sources are both given: keep one; `path: X` is short for one source")
        if self.eval_path is not None and self.eval_sources:
            raise ValueError("eval_path and eval_sources are both given: keep one")
        return self
