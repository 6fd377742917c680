"""Configuration -> verifiers that ask a language model."""

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peira.config.verifier_judge import ChatClientConfig, HttpClientConfig, JudgeConfig, RubricConfig
from peira.errors import ConfigError
from peira.verifiers.chat import CachedChat, ChatClient, ChatRequest, HttpChat
from peira.verifiers.judge import JudgeVerifier, PairJudge
from peira.verifiers.protocol import Verifier
from peira.verifiers.rubric import RubricVerifier


def build_judge(config: JudgeConfig) -> Verifier:
    """The judge that a configuration describes.

    Raises:
        ConfigError: several samples that would all be the same.
    """
    if config.samples > 1 and config.temperature == 0:
        raise ConfigError(
            f"judge: samples = {config.samples}: expected 1 at temperature 0, where all are alike; raise it"
        )
    client = build_client(config.client, config.cache)
    own_words = {"instructions": config.instructions} if config.instructions else {}
    if config.form == "pair":
        return PairJudge(client=client, attempts=config.attempts, max_tokens=config.max_tokens, **own_words)
    return JudgeVerifier(
        client=client,
        form=config.form,
        scale_max=config.scale_max,
        show_reference=config.show_reference,
        samples=config.samples,
        temperature=config.temperature,
        attempts=config.attempts,
        max_tokens=config.max_tokens,
        **own_words,
    )


def build_rubric(config: RubricConfig) -> RubricVerifier:
    """The rubric verifier that a configuration describes."""
    return RubricVerifier(
        client=build_client(config.client, config.cache),
        aggregate=config.aggregate,
        kappa=config.kappa,
        unreadable=config.unreadable,
        max_tokens=config.max_tokens,
    )


def build_client(config: ChatClientConfig, cache: Path | None) -> ChatClient:
    """The model to ask, behind its cache."""
    client: ChatClient
    if isinstance(config, HttpClientConfig):
        client = HttpChat(**config.model_dump(exclude={"kind"}))
    else:
        client = LocalChat(model=config.model, device=config.device)
    return CachedChat(client=client, folder=cache.expanduser()) if cache is not None else client


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalChat:
    """A causal language model in this process, greedy or sampled; loaded once per process, on first use.

    For small judges and for work without a network. One reply at a time: a server is faster for large ones.
    """

    model: str
    device: str = "cpu"

    @property
    def identity(self) -> str:
        """The model's name."""
        return f"local:{self.model}"

    def complete(self, request: ChatRequest) -> str:
        """Generate the reply."""
        import torch

        model, tokenizer = _loaded(self.model, self.device)
        prompt = torch.tensor([tokenizer.render(request.messages)], device=model.device)
        sampling: dict[str, Any] = {"do_sample": False}
        if request.temperature > 0:
            sampling = {"do_sample": True, "temperature": request.temperature, "top_k": 0, "top_p": 1.0}
        with torch.random.fork_rng(devices=[]), torch.inference_mode():
            torch.manual_seed(request.seed)
            ids = model.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                max_new_tokens=request.max_tokens,
                eos_token_id=list(tokenizer.end_ids),
                pad_token_id=tokenizer.pad_id,
                **sampling,
            )
        return str(tokenizer.decode(ids[0, prompt.shape[1] :].tolist()))


@functools.lru_cache(maxsize=1)
def _loaded(name: str, device: str) -> tuple[Any, Any]:
    from peira.models.hf import load_model
    from peira.models.tokenizer import load_tokenizer

    return load_model(name, device=device), load_tokenizer(name)
