import json
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from peira.data.rows import MAX_LINE_BYTES, read_json, read_jsonl, read_parquet, shown
from peira.errors import DataError


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_blank_lines_and_a_byte_order_mark_are_passed_over_and_numbers_count_them(tmp_path):
    path = write(tmp_path / "a.jsonl", b'\xef\xbb\xbf{"prompt": "x"}\n\n   \r\n{"prompt": "\xc3\xa9"}')
    rows = list(read_jsonl(path))
    assert [(row.place, row.values) for row in rows] == [
        ("a.jsonl: line 1", {"prompt": "x"}),
        ("a.jsonl: line 4", {"prompt": "é"}),
    ]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"prompt": "x"', "line 2, column 15"),
        (b"{'prompt': 'x'}", "line 2, column 2"),
        (b'["x"]', "line 2 = ['x']: expected one JSON object per line"),
        (b"3", "line 2 = 3: expected one JSON object per line"),
        (b'{"prompt": "\xe9"}', "line 2, byte 13 = b'\\xe9\"}'"),
        (b'{"prompt": NaN}', "line 2: NaN is no JSON number"),
        (b'{"prompt": "\\ud83d"}', "line 2: half of a surrogate pair, \\ud83d"),
        (b'{"prompt": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "line 2: "),
        (b'{"prompt": ' + b"9" * 5_000 + b"}", "line 2: Exceeds the limit"),
    ],
)
def test_a_bad_line_is_named_by_file_and_number(tmp_path, line, words):
    path = write(tmp_path / "mine.jsonl", b'{"prompt": "fine"}\n' + line + b'\n{"prompt": "fine"}\n')
    with pytest.raises(DataError) as caught:
        list(read_jsonl(path))
    assert str(caught.value).startswith("mine.jsonl: line 2")
    assert words in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_pair_of_surrogates_is_one_character(tmp_path):
    path = write(tmp_path / "a.jsonl", b'{"prompt": "\\ud83d\\ude00"}\n')
    assert next(read_jsonl(path)).values == {"prompt": "\N{GRINNING FACE}"}


def test_a_file_without_line_ends_is_refused_before_it_fills_the_memory(tmp_path):
    path = tmp_path / "huge.jsonl"
    with path.open("wb") as file:
        file.truncate(MAX_LINE_BYTES + 2)  # a hole: no disk space is used
    with pytest.raises(DataError, match="line 1: longer than"):
        list(read_jsonl(path))


def test_a_long_line_below_the_ceiling_is_read(tmp_path):
    text = "x" * 5_000_000
    path = write(tmp_path / "a.jsonl", json.dumps({"prompt": text}).encode())
    assert next(read_jsonl(path)).values["prompt"] == text


def test_a_json_array_gives_its_items_and_anything_else_is_read_as_lines(tmp_path):
    array = write(tmp_path / "a.json", b'\xef\xbb\xbf [{"prompt": "x"}, {"prompt": "y"}]')
    lines = write(tmp_path / "b.json", b'{"prompt": "x"}\n{"prompt": "y"}\n')
    assert [row.values["prompt"] for row in read_json(array)] == ["x", "y"]
    assert [row.place for row in read_json(lines)] == ["b.json: line 1", "b.json: line 2"]
    with pytest.raises(DataError, match=r"c.json: item 1 = 'y': expected an object"):
        list(read_json(write(tmp_path / "c.json", b'[{"prompt": "x"}, "y"]')))


def test_parquet_gives_nested_columns_as_python(tmp_path):
    values = [
        {"prompt": [{"role": "user", "content": "x"}], "reward_model": {"ground_truth": "1"}, "n": None},
        {"prompt": [{"role": "user", "content": "y"}], "reward_model": {"ground_truth": None}, "n": 3},
    ]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(values), tmp_path / "a.parquet")
    rows = list(read_parquet(tmp_path / "a.parquet"))
    assert [row.values for row in rows] == values
    assert rows[1].place == "a.parquet: row 1"


@pytest.mark.parametrize("data", [b"", b"PAR1", b'{"prompt": "x"}\n' * 20])
def test_what_is_not_parquet_is_refused_with_the_path(tmp_path, data):
    path = write(tmp_path / "a.parquet", data)
    with pytest.raises(DataError, match=r"a\.parquet: not a readable Parquet file"):
        list(read_parquet(path))


def test_long_values_are_shown_cut():
    assert shown("abc") == "'abc'"
    assert len(shown("x" * 1_000)) < 100
