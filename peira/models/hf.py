"""Load and save causal language models in `transformers` format."""

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from peira.errors import ModelError
from peira.models.catalogue import resolve
from peira.models.quiet import no_progress_bars
from peira.models.tokenizer import HFTokenizer

DType = Literal["auto", "float32", "bfloat16", "float16"]
INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"


def resolve_device(device: str | torch.device = "auto") -> torch.device:
    """`auto` is the first of CUDA, MPS and CPU that is here.

    Raises:
        ModelError: a device was named that is not here.
    """
    if str(device) == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        found = torch.device(device)
    except RuntimeError as error:
        raise ModelError(f"device = {device!r}: expected auto, cpu, cuda, cuda:INDEX or mps") from error
    here = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not here.get(found.type, True):
        usable = [name for name, is_here in here.items() if is_here]
        raise ModelError(f"device = {str(device)!r}: expected one that is here: {', '.join(usable)}, or auto")
    if found.type == "cuda" and (found.index or 0) >= torch.cuda.device_count():
        raise ModelError(
            f"device = {str(device)!r}: expected an index below {torch.cuda.device_count()}, "
            "the number of GPUs here"
        )
    return found


def resolve_dtype(dtype: DType, device: torch.device) -> torch.dtype:
    """`auto` is float32, and bfloat16 on CUDA devices that compute in it.

    Raises:
        ModelError: bfloat16 was asked of a CUDA device that only emulates it.
    """
    native = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    if dtype == "auto":
        return torch.bfloat16 if native else torch.float32
    if dtype == "bfloat16" and device.type == "cuda" and not native:
        raise ModelError(
            "model.dtype = 'bfloat16': this GPU only emulates it, slowly; use float32 or float16 (or auto)"
        )
    chosen = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    if dtype not in chosen:
        raise ModelError(f"model.dtype = {dtype!r}: expected auto, {', '.join(chosen)}")
    return chosen[dtype]


def load_config(folder: Path, *, trust_remote_code: bool = False) -> PretrainedConfig:
    """The architecture of a folder, checked to be a causal language model with full weights.

    Raises:
        ModelError: config.json is unreadable, of another kind of model, or quantised.
    """
    place = f"{folder}/config.json"
    try:
        raw = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        if not isinstance(raw, dict):
            raise ValueError(f"found a {type(raw).__name__}")
    except OSError as error:
        raise ModelError(f"{place}: expected a model configuration ({error.strerror})") from error
    except ValueError as error:
        raise ModelError(f"{place}: expected a JSON object ({error})") from error
    if "auto_map" in raw and not trust_remote_code and raw.get("model_type") not in _known_types():
        raise ModelError(
            f"{place}: auto_map: this model brings its own Python code; read it, then set "
            "model.trust_remote_code=true"
        )
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=trust_remote_code)
    except (ValueError, KeyError, OSError, ImportError, TypeError) as error:
        raise ModelError(
            f"{place}: model_type = {raw.get('model_type')!r}: expected a kind that this transformers "
            f"knows ({error})"
        ) from error
    if getattr(config, "quantization_config", None) is not None:
        raise ModelError(
            f"{place}: quantization_config: expected full weights, since quantised ones cannot be trained; "
            "use the unquantised model"
        )
    named = raw.get("architectures") or []
    own_code = trust_remote_code and "AutoModelForCausalLM" in raw.get("auto_map", {})
    if not own_code:
        expected = _causal_classes(config)
        if not expected or (named and not set(named) & set(expected)):
            raise ModelError(
                f"{place}: architectures = {named or raw.get('model_type')!r}: expected a causal language "
                "model" + (f" ({' or '.join(expected)})" if expected else "")
            )
    return config


def _known_types() -> frozenset[str]:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    return frozenset(CONFIG_MAPPING.keys())


def _causal_classes(config: PretrainedConfig) -> list[str]:
    try:
        found = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    except KeyError:
        return []
    classes = found if isinstance(found, tuple | list) else (found,)
    return [cls.__name__ for cls in classes]


def check_weights(folder: Path) -> None:
    """Look at file sizes and headers only: every shard is there and none is cut short.

    Raises:
        ModelError: names the missing or damaged files.
    """
    if (folder / INDEX).is_file():
        try:
            shards = sorted(set(json.loads((folder / INDEX).read_text())["weight_map"].values()))
        except (ValueError, KeyError, AttributeError) as error:
            raise ModelError(f"{folder}/{INDEX}: expected a JSON object with weight_map ({error})") from error
    elif (folder / SINGLE).is_file():
        shards = [SINGLE]
    else:
        others = sorted(p.name for p in folder.iterdir() if p.suffix in {".bin", ".pt", ".pth", ".gguf"})
        hint = f"; found {others}: convert them with transformers' save_pretrained" if others else ""
        raise ModelError(f"{folder}: expected {SINGLE} or {INDEX}{hint}")
    if missing := [name for name in shards if not (folder / name).is_file()]:
        raise ModelError(
            f"{folder}: expected the {len(shards)} shards of {INDEX}, missing {', '.join(missing)}; copy or "
            "download them again"
        )
    for name in shards:
        _check_safetensors(folder / name)


def _check_safetensors(path: Path) -> None:
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            (header_size,) = struct.unpack("<Q", file.read(8))
            if header_size > size:
                raise ValueError("its header is longer than the file")
            header = json.loads(file.read(header_size))
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    except (struct.error, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(
            f"{path}: expected a safetensors file ({error}); copy or download it again"
        ) from error
    expected = 8 + header_size + max(ends, default=0)
    if size != expected:
        raise ModelError(
            f"{path}: size = {size}: expected {expected} bytes by its header, so it was cut short; copy or "
            "download it again"
        )


def load_model(
    source: str | Path,
    *,
    dtype: DType = "auto",
    device: str | torch.device = "auto",
    revision: str | None = None,
    trust_remote_code: bool = False,
) -> PreTrainedModel:
    """A causal language model in eval mode with SDPA attention, on the device, every weight from the files.

    Its `generation_config` is kept to be saved again; nothing in peira samples by it.

    Raises:
        ModelError: whatever is wrong with the folder, with what to do about it. A model of which some weights
            would be left at random is refused.
    """
    device = resolve_device(device)
    torch_dtype = resolve_dtype(dtype, device)
    folder = resolve(source, revision=revision, trust_remote_code=trust_remote_code)
    config = load_config(folder, trust_remote_code=trust_remote_code)
    check_weights(folder)
    try:
        with no_progress_bars():
            model, report = AutoModelForCausalLM.from_pretrained(
                folder,
                config=config,
                dtype=torch_dtype,
                attn_implementation="sdpa",
                trust_remote_code=trust_remote_code,
                use_safetensors=True,
                output_loading_info=True,
                ignore_mismatched_sizes=True,
            )
    except (OSError, ValueError, RuntimeError, ImportError, KeyError) as error:
        raise ModelError(f"{folder}: expected a model that loads, but: {error}") from error
    for kind, names in (
        ("missing", report["missing_keys"]),
        ("of another shape than config.json says", [entry[0] for entry in report["mismatched_keys"]]),
        ("not part of this architecture", report["unexpected_keys"]),
    ):
        if names:
            listed = ", ".join(sorted(names)[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
            raise ModelError(
                f"{folder}: {len(names)} tensors are {kind}: {listed}; expected exactly the weights of "
                f"{type(model).__name__}"
            )
    generation = model.generation_config
    if generation is not None and not generation.do_sample:
        # Folders carry sampling settings beside do_sample=false, which transformers then refuses to save.
        try:
            generation.validate(strict=True)
        except ValueError:
            generation.do_sample = True
    model = model.to(device)
    model.eval()
    return model


def check_fit(config: PretrainedConfig, tokenizer: HFTokenizer) -> None:
    """Every id of the tokenizer has a row in the embedding.

    Raises:
        ModelError: the tokenizer has more ids than the model.
    """
    rows = int(config.get_text_config().vocab_size)
    if tokenizer.vocabulary_size > rows:
        raise ModelError(
            f"{tokenizer.place}: vocab_size = {rows}: expected at least {tokenizer.vocabulary_size} "
            "embedding rows, one for each id of the tokenizer; they do not belong together, or tokens were "
            "added without resizing"
        )


def save_model(
    model: PreTrainedModel,
    folder: Path,
    *,
    tokenizer: HFTokenizer | None = None,
    state_dict: Mapping[str, Tensor] | None = None,
    dtype: torch.dtype | None = None,
) -> None:
    """Write weights, configuration and tokenizer into an existing folder, so that `load_model` reads them.

    Not atomic by itself: checkpoints and `models.folder.written_whole` make the whole visible at once.

    Args:
        model: The model, or the skeleton whose weights `state_dict` holds.
        folder: Where to.
        tokenizer: Saved beside it, with the chat template in use.
        state_dict: Full weights by name, when the model itself holds shards of them.
        dtype: Of the stored floating-point weights; None keeps that of the model.
    """
    options: dict[str, Any] = {}
    if state_dict is not None or dtype is not None:
        weights = model.state_dict() if state_dict is None else state_dict
        options["state_dict"] = {
            name: value.to(dtype) if dtype is not None and value.is_floating_point() else value
            for name, value in weights.items()
        }
    model.save_pretrained(folder, **options)
    if tokenizer is not None:
        tokenizer.save(folder)
