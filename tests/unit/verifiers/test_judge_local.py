"""A judge that is a model folder: random weights, so that only the machinery is looked at."""

import pickle

import pytest
import torch
from transformers import LlamaForCausalLM

from peira.build.verifier_judge import LocalChat, build_client
from peira.config.verifier_judge import JudgeConfig
from peira.models.tiny import TinyShape, character_tokenizer, tiny_config
from peira.types.task import Message, Task
from peira.types.verdict import Attempt, VerdictStatus
from peira.verifiers.chat import ChatClient, ChatRequest
from peira.verifiers.judge import JudgeVerifier

ASK = ChatRequest(messages=(Message(role="user", content="Hi?"),), max_tokens=12)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    tokenizer = character_tokenizer(4096)
    torch.manual_seed(0)
    shape = TinyShape(
        hidden_size=32, num_layers=1, num_heads=2, num_kv_heads=1, intermediate_size=32, max_length=4096
    )
    LlamaForCausalLM(tiny_config(shape, tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_a_greedy_reply_takes_the_largest_logit_at_every_step(folder):
    chat = LocalChat(model=str(folder))
    model = LlamaForCausalLM.from_pretrained(folder)
    tokenizer = character_tokenizer(4096)
    ids = tokenizer.encode("<|bos|><|user|>Hi?<|end|><|assistant|>", add_special_tokens=False)
    prompt = len(ids)
    with torch.inference_mode():
        while len(ids) < prompt + ASK.max_tokens and (
            len(ids) == prompt or ids[-1] != tokenizer.eos_token_id
        ):
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    assert chat.complete(ASK) == tokenizer.decode(ids[prompt:], skip_special_tokens=True)


def test_sampling_follows_the_seed_and_leaves_the_global_generator_alone(folder):
    chat = LocalChat(model=str(folder))
    state = torch.random.get_rng_state()

    def reply(seed):
        return chat.complete(ChatRequest(messages=ASK.messages, max_tokens=12, temperature=1.0, seed=seed))

    assert reply(0) == reply(0)
    assert len({reply(seed) for seed in range(5)}) > 1
    assert torch.equal(torch.random.get_rng_state(), state)


def test_a_model_that_answers_in_no_known_form_abstains(folder):
    config = JudgeConfig(client={"kind": "local", "model": str(folder)}, max_tokens=16)
    client = build_client(config.client, None)
    assert isinstance(client, ChatClient)
    assert pickle.loads(pickle.dumps(client)) == client
    verdict = JudgeVerifier(client=client, max_tokens=16).verify(Task(id="t", prompt="Q"), Attempt(text="A"))
    assert (verdict.score, verdict.status) == (None, VerdictStatus.ABSTAIN)
