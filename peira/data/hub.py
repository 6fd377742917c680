"""Hub datasets and dataset folders, through the `datasets` library."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from peira.config.data import SourceConfig
from peira.data.rows import Row, first_line, nearest
from peira.errors import ConfigError, DataError


def hub_rows(config: SourceConfig) -> Iterator[Row]:
    """Rows of one split of a hub dataset; downloaded once, then read from the library's cache.

    Raises:
        DataError: it does not exist, or is not in the cache while the hub cannot be reached.
    """
    import datasets

    def load() -> Any:
        return datasets.load_dataset(config.path, config.subset, split=config.split)

    return _rows(
        load,
        config,
        "no such file or folder here, and no hub dataset of this name can be loaded",
        "check the spelling and the network, or download it elsewhere and give its folder",
    )


def folder_rows(path: Path, config: SourceConfig) -> Iterator[Row]:
    """Rows of one split of a folder: one that `save_to_disk` wrote, or one of JSONL, Parquet or CSV files.

    Raises:
        ConfigError: the split does not exist.
        DataError: nothing in the folder can be read.
    """
    import datasets

    def load() -> Any:
        if (path / "dataset_dict.json").exists() or (path / "state.json").exists():
            saved = datasets.load_from_disk(str(path))
            return _split(saved, config) if isinstance(saved, dict) else saved
        return datasets.load_dataset(str(path), config.subset, split=config.split)

    return _rows(
        load, config, "the folder cannot be read as a dataset", "put .jsonl or .parquet files into it"
    )


def _split(saved: Any, config: SourceConfig) -> Any:
    if config.split not in saved:
        raise ConfigError(
            f"data: split = {config.split!r}: expected one of {', '.join(saved)}"
            f"{nearest(config.split, saved)}"
        )
    return saved[config.split]


def _rows(load: Callable[[], Any], config: SourceConfig, problem: str, way_out: str) -> Iterator[Row]:
    try:
        table = load()
    except ConfigError:
        raise
    except Exception as error:  # the library has no common base for what can go wrong on the way
        raise DataError(f"data.path = {config.path!r}: {problem} ({first_line(error)}); {way_out}") from error
    name = f"{config.path} [{config.split}]"
    index = 0
    # As arrow tables: rows come as plain Python, and no image or audio column is decoded.
    for batch in table.with_format("arrow").iter(batch_size=1024):
        for values in batch.to_pylist():
            yield Row(place=f"{name}: row {index}", values=values)
            index += 1
