"""One hash of anything that JSON can hold, equal wherever and whenever it is taken."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any


def content_hash(*values: Any) -> str:
    """SHA-256 in hex of the values' canonical JSON; records count as their fields, other objects as `repr`.

    Example:
        >>> content_hash({"a": 1, "b": (2, 3)}) == content_hash({"b": [2, 3], "a": 1})
        True
    """
    try:
        text = _ENCODER.encode(values)
    except TypeError:  # keys that JSON does not know, or keys of several types
        text = _ENCODER.encode(_string_keys(values))
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, set | frozenset):
        return sorted(map(repr, value))
    return repr(value)


def _string_keys(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {repr(key): _string_keys(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_string_keys(item) for item in value]
    return value


_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=_plain)
