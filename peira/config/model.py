"""Which model, and how its weights are held."""

from typing import ClassVar, Literal

from peira.config.section import Section


class ModelConfig(Section):
    """A causal language model in `transformers` format."""

    shorthand: ClassVar[str | None] = "name"

    name: str
    """A folder, a hub id, or a name that `peira models` lists."""
    revision: str | None = None
    """Hub revision: branch, tag or commit. A commit makes the run reproducible."""
    trust_remote_code: bool = False
    """Run Python code that comes with the model."""
    chat_template: str | None = None
    """A Jinja template, or the path of one, in place of the tokenizer's own."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Of the learner's weights. auto: float32 on CPU and MPS, bfloat16 on CUDA devices that support it."""
