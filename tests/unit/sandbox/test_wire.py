import json
import math
from collections import Counter, namedtuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peira.sandbox.guest import Foreign, decode, encode

keys = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
plain = st.recursive(
    keys | st.complex_numbers(allow_nan=False),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(keys, inner)
        | st.sets(keys)
        | st.frozensets(keys)
    ),
    max_leaves=20,
)


def typed(value):
    """The value with the type of everything in it, without the order of sets: what equality forgives."""
    if isinstance(value, dict):
        return dict, {repr(key): (typed(key), typed(item)) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return type(value), sorted(map(repr, value))
    if isinstance(value, list | tuple):
        return type(value), [typed(item) for item in value]
    return type(value), repr(value)


@given(plain)
def test_plain_data_survives_the_wire_with_its_types(value):
    assert typed(decode(json.loads(json.dumps(encode(value))))) == typed(value)


def test_nan_and_infinity_survive_without_leaving_json():
    wire = json.dumps(encode([math.nan, math.inf, -math.inf]), allow_nan=False)
    nan, high, low = decode(json.loads(wire))
    assert math.isnan(nan)
    assert (high, low) == (math.inf, -math.inf)


def test_subclasses_keep_their_contents_and_objects_only_their_name():
    point = namedtuple("point", "x y")(1, 2)
    for value, name, contents in (
        (Counter("aab"), "Counter", {"a": 2, "b": 1}),
        (point, "point", (1, 2)),
        (object(), "object", None),
        (type("Liar", (int,), {"__eq__": lambda *_: True, "__hash__": None})(3), "Liar", None),
    ):
        got = decode(encode(value))
        assert isinstance(got, Foreign)
        assert (got.type_name, got.value) == (name, contents)


def test_no_method_of_a_value_is_called():
    def bang(*_):
        raise AssertionError("called")

    methods = ("__iter__", "__len__", "__getitem__", "__eq__", "__reduce__", "items", "keys", "__class__")
    trap = type("Trap", (dict,), dict.fromkeys(methods, bang))
    assert decode(encode(trap(a=1))).value == {"a": 1}


@pytest.mark.parametrize(
    "wire",
    [
        {},
        {"unknown": 1},
        {"tuple": 1},
        {"dict": [[1]]},
        {"dict": [[[1], 2]]},
        {"set": [[1]]},
        {"bytes": "%"},
        {"float": "x"},
    ],
)
def test_what_encode_never_writes_is_refused(wire):
    with pytest.raises(ValueError):  # noqa: PT011
        decode(wire)
