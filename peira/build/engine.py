"""Settings of an engine in, a running engine out. Here, and only here, are concrete machines named."""

from pathlib import Path
from typing import assert_never

import torch

from peira.config.engine import LocalEngineConfig, ScriptedEngineConfig
from peira.config.run import RunConfig
from peira.engines.local.engine import LocalEngine
from peira.engines.protocol import Engine
from peira.engines.scripted import ScriptedEngine
from peira.models.hf import check_fit, load_model
from peira.models.tokenizer import HFTokenizer
from peira.types.tokenizer import Tokenizer


def build_engine(run: RunConfig, model_folder: Path, tokenizer: Tokenizer) -> Engine:
    """The engine that samples and learns, with the model of this folder in it.

    Raises:
        ModelError: the folder holds no model that can be trained, or the device is not here.
    """
    match run.engine:
        case LocalEngineConfig():
            return _local(run, run.engine, model_folder, tokenizer)
        case ScriptedEngineConfig():
            return _scripted(run, run.engine, tokenizer)
        case _:
            assert_never(run.engine)


def build_reference(run: RunConfig, model_folder: Path, tokenizer: Tokenizer) -> Engine:
    """A frozen engine that is asked for nothing but `logprobs`, for a KL penalty.

    It holds weights and no optimizer, and refuses to learn.
    """
    engine = build_engine(run, model_folder, tokenizer)
    if isinstance(engine, LocalEngine):
        engine.model.requires_grad_(False)
    return engine


def _local(run: RunConfig, config: LocalEngineConfig, folder: Path, tokenizer: Tokenizer) -> LocalEngine:
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    model = load_model(
        folder,
        dtype=run.model.dtype,
        device=config.device,
        trust_remote_code=run.model.trust_remote_code,
    )
    if isinstance(tokenizer, HFTokenizer):
        check_fit(model.config, tokenizer)
    return LocalEngine(
        model,
        end_ids=tokenizer.end_ids,
        tokenizer=tokenizer,
        config=config,
        betas=run.optimizer.betas,
        eps=run.optimizer.eps,
        weight_decay=run.optimizer.weight_decay,
        max_grad_norm=run.optimizer.max_grad_norm,
    )


def _scripted(run: RunConfig, config: ScriptedEngineConfig, tokenizer: Tokenizer) -> ScriptedEngine:
    return ScriptedEngine(
        vocabulary_size=tokenizer.vocabulary_size,
        end_ids=tokenizer.end_ids,
        completions=[tokenizer.render(text) for text in config.completions],
        tokenizer=tokenizer,
        betas=run.optimizer.betas,
        eps=run.optimizer.eps,
        weight_decay=run.optimizer.weight_decay,
        max_grad_norm=run.optimizer.max_grad_norm,
    )
