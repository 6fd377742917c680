"""How a model is read: features, logits, log-probs of chosen tokens."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GraniteConfig,
    GraniteForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    PreTrainedModel,
)

from peira.models.forward import Network

SHAPE = {
    "vocab_size": 23,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 48,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


class LlamaWithOddHead(LlamaForCausalLM):
    """A head that no reading of weight, scale and cap explains."""

    def forward(self, *args: object, **kwargs: object) -> object:
        output = super().forward(*args, **kwargs)
        output.logits = output.logits + output.logits.sin()
        return output


def made(build: Callable[[], PreTrainedModel]) -> PreTrainedModel:
    torch.manual_seed(0)
    model = build()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


MODELS: dict[str, Callable[[], PreTrainedModel]] = {
    "plain": lambda: LlamaForCausalLM(LlamaConfig(**SHAPE)),
    "capped": lambda: Gemma2ForCausalLM(Gemma2Config(**SHAPE, head_dim=8, final_logit_softcapping=2.0)),
    "multiplied": lambda: CohereForCausalLM(CohereConfig(**SHAPE, logit_scale=0.25)),
    "divided": lambda: GraniteForCausalLM(GraniteConfig(**SHAPE, logits_scaling=4.0)),
    "dropout": lambda: GPT2LMHeadModel(GPT2Config(vocab_size=23, n_embd=16, n_layer=2, n_head=4)),
    "odd": lambda: LlamaWithOddHead(LlamaConfig(**SHAPE)),
}
IDS = torch.tensor([[5, 6, 7, 8, 9], [9, 3, 4, 5, 6]])


@pytest.mark.parametrize("name", MODELS)
def test_features_and_head_give_the_models_own_logits(name: str) -> None:
    model = made(MODELS[name])
    network = Network(model)
    own = model(input_ids=IDS).logits
    torch.testing.assert_close(network.logits(network.features(IDS)), own, atol=1e-5, rtol=1e-5)
    # only the odd one keeps its forward pass whole
    assert (network.features(IDS).shape[-1] == 23) == (name == "odd")


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_chosen_logprobs_entropy_and_gradient_are_those_of_full_logits(name: str, temperature: float) -> None:
    model = made(MODELS[name])
    network = Network(model)
    targets = torch.tensor([3, 0, 22, 7])
    rows, columns = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 4, 2, 3])
    upstream = torch.tensor([1.0, -2.0, 0.0, 0.5])

    def gradients() -> dict[str, Tensor]:
        return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}

    scores = torch.log_softmax(model(input_ids=IDS).logits[rows, columns] / temperature, dim=-1)
    expected = scores[torch.arange(4), targets]
    (expected * upstream).sum().backward()
    wanted = gradients()
    model.zero_grad()

    logprobs, entropy = network.token_logprobs(
        network.features(IDS)[rows, columns], targets, temperature=temperature
    )
    (logprobs * upstream).sum().backward()
    torch.testing.assert_close(logprobs, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(entropy, -(scores.exp() * scores).sum(-1), atol=1e-5, rtol=1e-5)
    assert not entropy.requires_grad
    found = gradients()
    assert found.keys() == wanted.keys()
    for parameter, gradient in wanted.items():
        torch.testing.assert_close(found[parameter], gradient, atol=1e-5, rtol=1e-4)


def test_a_hand_made_head_has_hand_made_logprobs() -> None:
    # one feature, two tokens with weights ln 1 and ln 3: probabilities 1/4 and 3/4
    model = made(MODELS["plain"])
    network = Network(model)
    head = nn.Linear(1, 2, bias=False)
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[0.0], [math.log(3)]]))
    network._head = head
    feature = torch.ones(1, 1, requires_grad=True)
    logprobs, entropy = network.token_logprobs(feature, torch.tensor([1]), temperature=1.0)
    assert float(logprobs.detach()) == pytest.approx(math.log(3 / 4))
    assert float(entropy) == pytest.approx(-(math.log(1 / 4) / 4 + 3 * math.log(3 / 4) / 4))
    logprobs.sum().backward()
    # d logprob / d feature = ln 3 - (3/4) ln 3; d logprob / d weight = onehot - p
    assert feature.grad is not None
    assert float(feature.grad) == pytest.approx(math.log(3) / 4)
    assert head.weight.grad is not None
    assert head.weight.grad[:, 0].tolist() == pytest.approx([-1 / 4, 1 / 4])


def test_a_head_with_a_bias_gives_the_bias_its_gradient() -> None:
    network = Network(made(MODELS["plain"]))
    head = nn.Linear(3, 5)
    network._head = head
    features, targets = torch.randn(4, 3), torch.tensor([0, 1, 2, 4])
    network.token_logprobs(features, targets, temperature=0.5)[0].sum().backward()
    found = [head.weight.grad.clone(), head.bias.grad.clone()]  # type: ignore[union-attr]
    head.zero_grad()
    torch.log_softmax(head(features) / 0.5, dim=-1)[torch.arange(4), targets].sum().backward()
    torch.testing.assert_close(found, [head.weight.grad, head.bias.grad])


def test_what_can_be_cached_is_told_from_what_cannot() -> None:
    assert Network(made(MODELS["plain"])).cacheable
    assert Network(made(MODELS["odd"])).cacheable
    mamba = MambaConfig(vocab_size=23, hidden_size=16, state_size=4, num_hidden_layers=1)
    assert not Network(made(lambda: MambaForCausalLM(mamba))).cacheable


def test_the_context_is_the_configurations() -> None:
    assert Network(made(MODELS["plain"])).context_tokens == 48
    assert Network(made(MODELS["dropout"])).context_tokens == 1024
