"""Inverse-CDF sampling: tokens and log-probs worked out by hand."""

import math

import pytest
import torch

from peira.errors import EngineError
from peira.models.draw import Uniforms, draw
from peira.types.rollout import SamplingParams

# four tokens with probabilities 1/10, 2/10, 3/10, 4/10: cumulative 0.1, 0.3, 0.6, 1
TENTHS = torch.tensor([1.0, 2.0, 3.0, 4.0]).log()


def one(logits: torch.Tensor, u: float, **params: object) -> tuple[int, float]:
    tokens, logprobs = draw(
        logits[None].clone(),
        torch.tensor([u], dtype=torch.float64),
        SamplingParams(**params),  # type: ignore[arg-type]
    )
    return int(tokens[0]), math.exp(float(logprobs[0]))


@pytest.mark.parametrize(
    ("u", "token"),
    [(0.0, 0), (0.0999, 0), (0.1001, 1), (0.2999, 1), (0.3001, 2), (0.5999, 2), (0.6001, 3), (1 - 2**-53, 3)],
)
def test_the_first_token_whose_cumulative_probability_exceeds_u(u: float, token: int) -> None:
    found, probability = one(TENTHS, u)
    assert found == token
    assert probability == pytest.approx((token + 1) / 10, rel=1e-6)


def test_temperature_comes_first() -> None:
    # temperature 1/2 squares: 1, 4, 9, 16 of 30; cumulative 1/30, 5/30, 14/30
    for u, token, share in [(0.03, 0, 1), (0.04, 1, 4), (0.46, 2, 9), (0.47, 3, 16)]:
        assert one(TENTHS, u, temperature=0.5) == (token, pytest.approx(share / 30, rel=1e-6))


def test_top_k_keeps_the_likeliest_and_shares_their_mass() -> None:
    # tokens 3 and 2 stay: 4/7 and 3/7, likeliest first
    assert one(TENTHS, 4 / 7 - 0.01, top_k=2) == (3, pytest.approx(4 / 7, rel=1e-6))
    assert one(TENTHS, 4 / 7 + 0.01, top_k=2) == (2, pytest.approx(3 / 7, rel=1e-6))
    assert one(TENTHS, 0.999999, top_k=2)[0] == 2


def test_top_p_keeps_the_smallest_set_that_reaches_it() -> None:
    # 0.4 < 0.5, 0.4 + 0.3 >= 0.5: two tokens, 4/7 and 3/7
    assert one(TENTHS, 0.56, top_p=0.5) == (3, pytest.approx(4 / 7, rel=1e-6))
    assert one(TENTHS, 0.999999, top_p=0.5) == (2, pytest.approx(3 / 7, rel=1e-6))
    # the likeliest token always stays
    assert one(TENTHS, 0.999999, top_p=0.01) == (3, pytest.approx(1.0))


def test_top_p_is_a_share_of_what_top_k_left() -> None:
    # after top_k=3: 4/9, 3/9, 2/9; 4/9 < 0.7, 7/9 >= 0.7: two stay
    assert one(TENTHS, 0.999999, top_k=3, top_p=0.7) == (2, pytest.approx(3 / 7, rel=1e-6))


def test_a_wide_nucleus_is_found_beyond_the_first_guess() -> None:
    # 1000 equal tokens: 900 of them make 0.9
    tokens, logprobs = draw(
        torch.zeros(64, 1000),
        torch.linspace(0, 0.9999, 64, dtype=torch.float64),
        SamplingParams(top_p=0.9),
    )
    assert len(set(tokens.tolist())) == 64
    assert logprobs.exp().tolist() == pytest.approx([1 / 900] * 64, rel=2e-3)


def test_greedy_is_certain() -> None:
    assert one(TENTHS, 0.0, temperature=0.0) == (3, 1.0)


def test_a_token_of_probability_zero_is_never_drawn() -> None:
    logits = torch.tensor([-math.inf, 0.0, -math.inf, 0.0, -math.inf])
    for u in (0.0, 0.25, 0.4999999, 0.5, 0.75, 1 - 2**-53):
        token, probability = one(logits, u)
        assert token in (1, 3)
        assert probability == pytest.approx(0.5)
    # underflow in float32 counts as zero too
    assert one(torch.tensor([-200.0, 0.0, -200.0]), 1 - 2**-53)[0] == 1
    assert one(torch.tensor([-200.0, 0.0, -200.0]), 0.0)[0] == 1


@pytest.mark.parametrize("vocabulary", [1, 2, 3, 97, 1024, 1025, 49152])
def test_every_vocabulary_size_agrees_with_a_running_sum(vocabulary: int) -> None:
    generator = torch.Generator().manual_seed(vocabulary)
    logits = torch.randn(16, vocabulary, generator=generator) * 3
    u = torch.rand(16, generator=generator, dtype=torch.float64)
    tokens, logprobs = draw(logits.clone(), u, SamplingParams())
    exact = torch.log_softmax(logits.double(), dim=-1)
    sums = exact.exp().cumsum(-1)
    for row, (token, logprob) in enumerate(zip(tokens.tolist(), logprobs.tolist(), strict=True)):
        before = float(sums[row, token - 1]) if token > 0 else 0.0
        assert before - 1e-6 <= float(u[row]) <= float(sums[row, token]) + 1e-6
        assert logprob == pytest.approx(float(exact[row, token]), abs=5e-6)


@pytest.mark.parametrize("params", [{}, {"top_k": 3}, {"top_p": 0.5}, {"temperature": 0.0}])
def test_diverged_logits_are_refused(params: dict[str, float]) -> None:
    for broken in (
        torch.tensor([0.0, math.nan, 0.0]),
        torch.full((3,), -math.inf),
        torch.full((3,), math.inf),
    ):
        with pytest.raises(EngineError, match="diverged"):
            one(broken, 0.5, **params)


def test_uniforms_depend_on_seed_index_and_position_alone() -> None:
    first = Uniforms(7, 0)
    assert first.at(5) == Uniforms(7, 0).at(5)
    first.at(0)
    assert first.at(5) == Uniforms(7, 0).at(5)
    seen = {Uniforms(s, i).at(p) for s in (7, 8, -1, 2**80) for i in (0, 1, 11) for p in (0, 1, 11)}
    assert len(seen) == 4 * 3 * 3
    # 7/11/1 and 7/1/11 must not meet
    assert Uniforms(7, 11).at(1) != Uniforms(7, 1).at(11)


def test_uniforms_are_uniform() -> None:
    values = [
        Uniforms(seed, index).at(position)
        for seed in range(10)
        for index in range(10)
        for position in range(40)
    ]
    assert all(0 <= v < 1 for v in values)
    # mean 1/2 with standard error 1 / sqrt(12 * 4000) = 0.0046
    assert sum(values) / len(values) == pytest.approx(0.5, abs=4 * 0.0046)
    # each tenth holds 400, give or take sqrt(360) = 19
    for tenth in range(10):
        assert sum(tenth <= 10 * v < tenth + 1 for v in values) == pytest.approx(400, abs=4 * 19)
