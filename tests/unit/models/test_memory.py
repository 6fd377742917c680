"""What a run will hold, counted by hand on small numbers and measured on real ones."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from transformers import LlamaConfig

from peira.models.catalogue import availability, resolve
from peira.models.hf import load_config
from peira.models.memory import PROCESS_BYTES, MemoryEstimate, Workload, estimate_memory, num_parameters

CONFIG = LlamaConfig(
    vocab_size=100,
    hidden_size=8,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    intermediate_size=16,
    tie_word_embeddings=True,
)
# A layer: q 8*8, k and v 8*4 each, o 8*8, three of 8*16, two norms of 8: 592; embeddings 800; a norm 8.
PARAMETERS = 2 * 592 + 800 + 8
WORK = Workload(
    num_rollouts=8,
    group_size=4,
    max_rows=4,
    prompt_tokens=10,
    max_tokens=30,
    micro_batch_tokens=80,
    shares_prompts=False,
)
FACTOR = 1.6
"""Estimate and measurement agree within this factor, either way."""


def estimate(
    work: Workload = WORK, dtype: torch.dtype = torch.float32, device: str = "cpu"
) -> MemoryEstimate:
    return estimate_memory(CONFIG, work, dtype=dtype, device=torch.device(device))


def test_parameters_are_counted_without_weights() -> None:
    assert num_parameters(CONFIG) == PARAMETERS


def test_what_stays_is_in_every_phase() -> None:
    for holders in estimate().phases.values():
        assert holders["process"] == PROCESS_BYTES
        assert holders["weights"] == 4 * PARAMETERS
        assert holders["optimizer"] == 8 * PARAMETERS  # two moments


def test_narrow_weights_are_trained_through_masters() -> None:
    phases = estimate(dtype=torch.bfloat16, device="cuda").phases
    assert phases["learn"]["process"] == 0
    assert phases["learn"]["weights"] == 2 * PARAMETERS
    assert phases["learn"]["optimizer"] == 12 * PARAMETERS  # two moments and a master
    assert phases["update"]["gradients"] == 6 * PARAMETERS  # bfloat16, and once more in float32


def test_the_cache_holds_keys_and_values_of_every_row() -> None:
    # 2 (keys, values) * 2 layers * 4 wide * 4 bytes = 64 per token. 4 rows of 1.5 * 40 + 128 columns = 752;
    # prompts computed together: 2 groups * 10 = 20 tokens.
    assert estimate().phases["sample"]["keys and values"] == 64 * (752 + 20)


def test_activations_are_those_of_one_micro_batch() -> None:
    # A layer keeps 6*8 + 3*8 + 2*4 + 4*16 = 144 numbers per token; 80 tokens, 2 layers, 4 bytes.
    assert estimate().phases["learn"]["activations"] == 80 * 2 * 144 * 4
    # A micro-batch is never smaller than one rollout of 40 tokens, nor larger than all 8 of them.
    small = estimate(replace(WORK, micro_batch_tokens=1)).phases["learn"]["activations"]
    large = estimate(replace(WORK, micro_batch_tokens=10**9)).phases["learn"]["activations"]
    assert (small, large) == (40 * 2 * 144 * 4, 320 * 2 * 144 * 4)


def test_a_shared_prompt_is_held_once_per_group() -> None:
    # 80 tokens are 2 rollouts of one group: 2 * 30 completion tokens and 10 of the prompt.
    shared = estimate(replace(WORK, shares_prompts=True)).phases["learn"]["activations"]
    assert shared == 70 * 2 * 144 * 4


def test_checkpointing_keeps_one_layer_and_the_borders() -> None:
    checkpointed = estimate(replace(WORK, gradient_checkpointing=True)).phases["learn"]["activations"]
    assert checkpointed == 80 * (2 * 8 + 144) * 4


def test_the_peak_names_its_largest_holder() -> None:
    found = MemoryEstimate(
        phases={"sample": {"weights": 5, "logits": 1}, "learn": {"weights": 5, "activations": 9}}
    )
    assert (found.peak_phase, found.peak_bytes, found.largest_holder) == ("learn", 14, "activations")
    assert "micro_batch_tokens" in found.lines()[0]
    assert len(found.lines()) == 3


MEASURE = """
import json, resource, sys
import torch
torch.set_num_threads(1)
from peira.models.forward import Network
from peira.models.hf import load_model

folder, rows, length, prompt = sys.argv[1], *map(int, sys.argv[2:])
model = load_model(folder, device="cpu")
network = Network(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
for _ in range(2):
    ids = torch.randint(3, 200, (rows, length))
    features = network.features(ids[:, :-1])[:, prompt - 1 :].flatten(0, 1)
    logprobs, _ = network.token_logprobs(features, ids[:, prompt:].flatten(), temperature=1.0)
    logprobs.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
print(json.dumps(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024))
"""


def measured_and_estimated(name: str, *, rows: int, length: int, prompt: int) -> tuple[float, float]:
    arguments = [str(resolve(name)), str(rows), str(length), str(prompt)]
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    work = Workload(
        num_rollouts=rows,
        group_size=rows,
        max_rows=1,
        prompt_tokens=prompt,
        max_tokens=length - prompt,
        micro_batch_tokens=rows * length,
        shares_prompts=False,
    )
    config = load_config(resolve(name))
    found = estimate_memory(config, work, dtype=torch.float32, device=torch.device("cpu"))
    return json.loads(done.stdout), sum(found.phases["learn"].values())


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss has another unit elsewhere")
def test_the_estimate_of_a_tiny_model_is_what_is_measured() -> None:
    # 256 rows of 200 tokens: activations are about half of the whole.
    measured, estimated = measured_and_estimated("tiny-arith", rows=256, length=200, prompt=20)
    assert measured / FACTOR < estimated < measured * FACTOR


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss has another unit elsewhere")
@pytest.mark.skipif(
    availability("smollm2-135m-instruct").state == "missing",
    reason="needs the smollm2 data package: `peira models`",
)
def test_the_estimate_of_a_real_model_is_what_is_measured() -> None:
    measured, estimated = measured_and_estimated("smollm2-135m-instruct", rows=8, length=96, prompt=64)
    assert measured / FACTOR < estimated < measured * FACTOR
