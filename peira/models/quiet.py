"""Progress bars of `transformers`, off for a while: ours tell what is going on."""

from collections.abc import Iterator
from contextlib import contextmanager

from transformers.utils import logging


@contextmanager
def no_progress_bars() -> Iterator[None]:
    """Silence the bars within the block."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
