"""The model that a configuration names."""

from pathlib import Path
from typing import TYPE_CHECKING

from peira.config.model import ModelConfig

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    from peira.models.tokenizer import HFTokenizer


def build_folder(model: ModelConfig) -> Path:
    """The ordinary folder behind the name, converted or downloaded if need be; loads no torch where it exists."""
    from peira.models.catalogue import resolve

    return resolve(model.name, revision=model.revision, trust_remote_code=model.trust_remote_code)


def build_tokenizer(model: ModelConfig) -> "HFTokenizer":
    """The tokenizer alone; no weights are read."""
    from peira.models.tokenizer import load_tokenizer

    return load_tokenizer(
        model.name,
        revision=model.revision,
        trust_remote_code=model.trust_remote_code,
        chat_template=model.chat_template,
    )


def build_model(
    model: ModelConfig, device: "str | torch.device" = "auto"
) -> "tuple[PreTrainedModel, HFTokenizer, Path]":
    """Model on its device, tokenizer, and the folder both came from.

    Raises:
        ModelError: the folder is unusable, or tokenizer and model do not belong together.
    """
    from peira.models.hf import check_fit, load_model

    folder = build_folder(model)
    tokenizer = build_tokenizer(model)
    loaded = load_model(
        model.name,
        dtype=model.dtype,
        device=device,
        revision=model.revision,
        trust_remote_code=model.trust_remote_code,
    )
    check_fit(loaded.config, tokenizer)
    return loaded, tokenizer, folder
