"""A folder is loaded whole, or refused with what is wrong with it."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification

from peira.build.model import build_model
from peira.config.model import ModelConfig
from peira.errors import ModelError
from peira.models.catalogue import resolve
from peira.models.hf import check_fit, load_config, load_model, resolve_device, resolve_dtype, save_model
from peira.models.tiny import character_tokenizer
from peira.models.tokenizer import HFTokenizer

SMALL = LlamaConfig(
    vocab_size=262, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    model = LlamaForCausalLM(SMALL)
    model.save_pretrained(tmp_path / "model")
    character_tokenizer().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def refusal(folder: Path) -> str:
    with pytest.raises(ModelError) as refused:
        load_model(folder, device="cpu")
    return str(refused.value)


def edit_config(folder: Path, **changes: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))


def edit_weights(folder: Path, **changes: torch.Tensor | None) -> None:
    weights = load_file(folder / "model.safetensors")
    for name, value in changes.items():
        name = name.replace("__", ".")
        if value is None:
            del weights[name]
        else:
            weights[name] = value
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def test_every_weight_comes_from_the_file(folder: Path) -> None:
    model = load_model(folder, device="cpu")
    stored = load_file(folder / "model.safetensors")
    assert {name for name, _ in model.named_parameters()} == set(stored)
    assert all(torch.equal(value, stored[name]) for name, value in model.named_parameters())
    assert not model.training
    assert model.config._attn_implementation == "sdpa"


def test_a_model_survives_saving_and_loading_bit_for_bit(folder: Path, tmp_path: Path) -> None:
    model, tokenizer, _ = build_model(ModelConfig(name=str(folder)), "cpu")
    with torch.no_grad():
        model.lm_head.weight.add_(1.0)
    save_model(model, tmp_path / "saved", tokenizer=tokenizer)
    again, tokenizer_again, _ = build_model(ModelConfig(name=str(tmp_path / "saved")), "cpu")
    ids = torch.tensor([tokenizer.render("37+58=")])
    assert torch.equal(model(ids).logits, again(ids).logits)
    assert tokenizer_again.render("37+58=") == tokenizer.render("37+58=")


def test_gathered_weights_and_another_dtype_can_be_saved(folder: Path, tmp_path: Path) -> None:
    model = load_model(folder, device="cpu")
    gathered = {name: torch.full_like(value, 0.5) for name, value in model.state_dict().items()}
    save_model(model, tmp_path / "saved", state_dict=gathered, dtype=torch.bfloat16)
    stored = load_file(tmp_path / "saved" / "model.safetensors")
    assert all(value.dtype == torch.bfloat16 and bool((value == 0.5).all()) for value in stored.values())


def test_sampling_settings_that_transformers_would_not_save_do_not_stop_a_checkpoint(
    folder: Path, tmp_path: Path
) -> None:
    settings = {"do_sample": False, "temperature": 0.7, "top_k": 20, "eos_token_id": [2, 0]}
    (folder / "generation_config.json").write_text(json.dumps(settings))
    save_model(load_model(folder, device="cpu"), tmp_path / "saved")
    kept = json.loads((tmp_path / "saved" / "generation_config.json").read_text())
    assert (kept["temperature"], kept["top_k"], kept["eos_token_id"]) == (0.7, 20, [2, 0])


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    assert "no such folder" in refusal(tmp_path / "nowhere")


def test_a_folder_without_config_says_what_it_found(folder: Path) -> None:
    (folder / "config.json").unlink()
    said = refusal(folder)
    assert "expected config.json" in said
    assert "model.safetensors" in said


def test_a_run_folder_points_to_the_checkpoint_within(folder: Path) -> None:
    said = refusal(folder.parent)
    assert f"did you mean {str(folder)!r}" in said


def test_an_adapter_is_told_from_a_model(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    assert "LoRA adapter" in refusal(tmp_path)


def test_missing_shards_are_named(folder: Path) -> None:
    load_model(folder, device="cpu").save_pretrained(folder / "sharded", max_shard_size="10KB")
    shards = sorted((folder / "sharded").glob("model-*.safetensors"))
    assert len(shards) > 2
    shards[1].unlink()
    shards[2].unlink()
    said = refusal(folder / "sharded")
    assert f"missing {shards[1].name}, {shards[2].name}" in said


def test_a_truncated_file_is_found_before_loading(folder: Path) -> None:
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    said = refusal(folder)
    assert f"size = {len(whole) - 100}: expected {len(whole)} bytes" in said
    path.write_bytes(whole[:20])
    assert "expected a safetensors file" in refusal(folder)
    path.write_bytes(b"")
    assert "expected a safetensors file" in refusal(folder)


def test_other_weight_formats_are_named(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert "pytorch_model.bin" in refusal(folder)


def test_a_model_with_weights_left_at_random_is_refused(folder: Path) -> None:
    edit_weights(folder, model__layers__1__mlp__up_proj__weight=None)
    said = refusal(folder)
    assert "1 tensors are missing: model.layers.1.mlp.up_proj.weight" in said


def test_weights_of_another_architecture_are_refused(folder: Path) -> None:
    edit_weights(folder, value_head__weight=torch.zeros(1, 16))
    assert "not part of this architecture: value_head.weight" in refusal(folder)


def test_weights_of_another_shape_are_refused(folder: Path) -> None:
    edit_weights(folder, model__norm__weight=torch.zeros(8))
    said = refusal(folder)
    assert "model.norm.weight" in said
    assert "shape" in said


def test_other_kinds_of_models_are_refused(tmp_path: Path) -> None:
    BertConfig(architectures=["BertForMaskedLM"]).save_pretrained(tmp_path / "bert")
    assert "expected a causal language model" in refusal(tmp_path / "bert")
    LlamaForSequenceClassification(SMALL).save_pretrained(tmp_path / "reward")
    assert "LlamaForSequenceClassification" in refusal(tmp_path / "reward")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model_type": "nonesuch"}, "model_type = 'nonesuch'"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "quantization_config"),
        ({"model_type": "nonesuch", "auto_map": {"AutoConfig": "x.Y"}}, "model.trust_remote_code=true"),
    ],
)
def test_a_config_that_cannot_be_trained_is_refused(
    folder: Path, changes: dict[str, object], said: str
) -> None:
    edit_config(folder, **changes)
    assert said in refusal(folder)


def test_an_unreadable_config_is_refused(folder: Path) -> None:
    (folder / "config.json").write_text("{")
    assert "expected a JSON object" in refusal(folder)
    (folder / "config.json").write_text("[]")
    assert "found a list" in refusal(folder)


def test_a_tokenizer_larger_than_the_model_is_refused(folder: Path) -> None:
    edit_config(folder, vocab_size=260)
    tokenizer = HFTokenizer(character_tokenizer())
    with pytest.raises(ModelError, match=r"vocab_size = 260: expected at least 262"):
        check_fit(load_config(folder), tokenizer)


def test_devices_and_dtypes_are_resolved() -> None:
    cpu = torch.device("cpu")
    assert resolve_device("cpu") == cpu
    assert resolve_dtype("auto", cpu) == torch.float32
    assert resolve_dtype("auto", torch.device("mps")) == torch.float32
    assert resolve_dtype("bfloat16", cpu) == torch.bfloat16
    with pytest.raises(ModelError, match="device = 'toaster'"):
        resolve_device("toaster")


@pytest.mark.skipif(torch.cuda.is_available(), reason="asks for a device that this machine has")
def test_a_device_that_is_not_here_is_refused() -> None:
    with pytest.raises(ModelError, match="expected one that is here"):
        resolve_device("cuda")


@pytest.mark.skipif(torch.cuda.is_available(), reason="CPU is what auto means only without a GPU")
def test_auto_falls_back_to_what_is_here() -> None:
    expected = "mps" if torch.backends.mps.is_available() else "cpu"
    assert resolve_device("auto").type == expected


def test_the_dtype_asked_for_is_the_dtype_loaded() -> None:
    model = load_model(resolve("tiny-arith"), dtype="bfloat16", device="cpu")
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}


def test_loading_leaves_the_folder_as_it_was(folder: Path) -> None:
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    load_model(folder, device="cpu")
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before
