"""The model that a configuration names."""

from pathlib import Path
from typing import TYPE_CHECKING

from peira.config.engine import LocalEngineConfig
from peira.config.model import ModelConfig
from peira.config.run import RunConfig
from peira.errors import ConfigError

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    from peira.models.memory import MemoryEstimate
    from peira.models.tokenizer import HFTokenizer


def build_folder(model: ModelConfig) -> Path:
    """The ordinary folder behind the name, converted or downloaded if need be."""
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


def check_vocabulary(tokenizer: "HFTokenizer", other: ModelConfig, place: str) -> None:
    """Refuse a further reference that reads the same ids as other tokens.

    Raises:
        ConfigError: the vocabularies differ; names a token that only one has.
    """
    own, its = tokenizer.backend.get_vocab(), build_tokenizer(other).backend.get_vocab()
    if own != its:
        odd = min(own.items() ^ its.items())
        raise ConfigError(
            f"{place} = {other.name!r}: expected a model with the vocabulary of the trained one; "
            f"token {odd[0]!r} has id {own.get(odd[0])} there and {its.get(odd[0])} here; choose a "
            "relative of it"
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


def build_memory_estimate(run: RunConfig, folder: Path, *, prompt_tokens: int) -> "MemoryEstimate | None":
    """Peak memory of this run by phase, from `config.json` alone; None for engines that hold no model.

    Args:
        run: The run's settings.
        folder: Of the model; weights need not be there.
        prompt_tokens: Of the longest prompt.
    """
    from peira.models.hf import load_config, resolve_device, resolve_dtype
    from peira.models.memory import Workload, estimate_memory

    if not isinstance(run.engine, LocalEngineConfig):
        return None
    device = resolve_device(run.engine.device)
    workload = Workload(
        num_rollouts=run.prompts_per_step * run.group_size,
        group_size=run.group_size,
        max_rows=run.engine.max_rows,
        prompt_tokens=prompt_tokens,
        max_tokens=run.sampling.max_tokens,
        micro_batch_tokens=run.micro_batch_tokens,
        gradient_checkpointing=run.engine.gradient_checkpointing,
        shares_prompts=run.engine.share_prompts,
        num_references=(run.algorithm.kl.coefficient > 0) + len(run.algorithm.kl.others),
    )
    config = load_config(folder, trust_remote_code=run.model.trust_remote_code)
    return estimate_memory(config, workload, dtype=resolve_dtype(run.model.dtype, device), device=device)
