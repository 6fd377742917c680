from collections.abc import Sequence

import pytest

from peira.models.stopping import StopRule
from peira.types.rollout import SamplingParams, StopReason
from peira.types.task import Message


class ByteTokenizer:
    """Ids are bytes: a character may take several of them."""

    vocabulary_size = 257
    end_ids = (256,)
    pad_id = 0

    def render(self, prompt: str | tuple[Message, ...]) -> tuple[int, ...]:
        return tuple(str(prompt).encode())

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        return bytes(i for i in token_ids if i < 256).decode(errors="replace")


def stops_at(
    text: str, *strings: str, prefix: str = "", max_tokens: int = 100
) -> tuple[int, StopReason | None]:
    """Bytes read until the rule stops, and its reason."""
    params = SamplingParams(stop_strings=strings, max_tokens=max_tokens)
    rule = StopRule(params, (256,), ByteTokenizer(), tuple(prefix.encode()))
    for count, byte in enumerate(text.encode(), 1):
        if (reason := rule.see(byte)) is not None:
            return count, reason
    return len(text.encode()), None


@pytest.mark.parametrize(
    ("text", "strings", "end"),
    [
        ("say stop now", ("stop",), 8),
        ("ssstop", ("stop",), 6),  # the beginning of a match inside a failed one
        ("abababc", ("ababc",), 7),
        ("x</answer>y", ("</answer>", "</think>"), 10),
        ("a.b", (".",), 2),
        ("un café noir", ("café",), 8),  # e acute is two bytes
        ("price: 5€!", ("€",), 11),  # three bytes
        ("line\nUser: hi", ("\nUser:",), 10),
    ],
)
def test_a_stop_string_ends_with_the_token_that_completes_it(
    text: str, strings: tuple[str, ...], end: int
) -> None:
    assert stops_at(text, *strings) == (end, StopReason.STOP_STRING)


def test_a_text_without_a_stop_string_goes_on() -> None:
    assert stops_at("sto p st op", "stop") == (11, None)


def test_a_stop_string_may_begin_in_the_prefix() -> None:
    assert stops_at("op it", "stop", prefix="please st") == (2, StopReason.STOP_STRING)


def test_a_stop_string_wholly_in_the_prefix_does_not_count_again() -> None:
    assert stops_at("go on", "stop", prefix="stop") == (5, None)
    assert stops_at("go on", "ab", "abcdefgh", prefix="ab") == (5, None)


def test_half_a_character_in_the_prefix_is_completed() -> None:
    rule = StopRule(SamplingParams(stop_strings=("é",)), (), ByteTokenizer(), tuple("é".encode()[:1]))
    assert rule.see("é".encode()[1]) is StopReason.STOP_STRING


def test_end_tokens_come_before_stop_strings_and_budget() -> None:
    rule = StopRule(SamplingParams(max_tokens=1, stop_token_ids=(65,)), (256,), ByteTokenizer(), ())
    assert rule.see(65) is StopReason.END
    rule = StopRule(SamplingParams(max_tokens=1, stop_token_ids=(65,)), (256,), ByteTokenizer(), ())
    assert rule.see(256) is StopReason.END


def test_a_stop_string_on_the_last_token_is_a_stop_and_not_a_truncation() -> None:
    assert stops_at("abstop", "stop", max_tokens=6) == (6, StopReason.STOP_STRING)
    assert stops_at("abstop", "stop", max_tokens=5) == (5, StopReason.LENGTH)
