"""Models and tokenizers in `transformers` format."""
