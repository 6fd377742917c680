"""Policies small enough to take every expectation exactly."""

import itertools
import math
from collections.abc import Callable

import torch
from torch import Tensor

Advantages = Callable[[Tensor, Tensor], Tensor]


class Arms:
    """A softmax over a few arms, of which some are right; one token per rollout."""

    def __init__(self, logits: list[float], right: list[int]) -> None:
        self.probs = torch.softmax(torch.tensor(logits, dtype=torch.float64), dim=0)
        self.rewards = torch.zeros(len(logits), dtype=torch.float64)
        self.rewards[right] = 1.0
        # score of arm a: d log p_a / d logits = onehot(a) - p
        self.scores = torch.eye(len(logits), dtype=torch.float64) - self.probs

    @property
    def success(self) -> Tensor:
        return (self.probs * self.rewards).sum()

    @property
    def success_gradient(self) -> Tensor:
        return ((self.probs * self.rewards)[:, None] * self.scores).sum(dim=0)

    def groups(self, size: int) -> tuple[Tensor, Tensor]:
        """(arms [P, G], probability [P]) of every ordered group of this size."""
        arms = torch.tensor(list(itertools.product(range(len(self.probs)), repeat=size)))
        return arms, self.probs[arms].prod(dim=1)

    def expected_gradient(self, size: int, advantages: Advantages) -> Tensor:
        """E[(1 / G) sum A_i score_i] over every group there is."""
        arms, chance = self.groups(size)
        rewards = self.rewards[arms]
        a = advantages(rewards, torch.ones_like(rewards, dtype=torch.bool))
        per_group = (a[:, :, None] * self.scores[arms]).mean(dim=1)
        return (chance[:, None] * per_group).sum(dim=0)


class TwoBits:
    """Two binary steps with logits of (first = 1), (second = 1 | first = 0), (second = 1 | first = 1)."""

    sequences = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]])

    def __init__(self, first: float, second_after_0: float, second_after_1: float) -> None:
        p = torch.tensor([first, second_after_0, second_after_1], dtype=torch.float64)
        self.logits = (p / (1 - p)).log().requires_grad_()

    def logprobs(self) -> Tensor:
        """Log-probs of each token of each sequence, [4, 2]."""
        first, second = self.sequences[:, 0], self.sequences[:, 1]
        own = torch.stack([self.logits[0].expand(4), self.logits[1:][first]], dim=1)
        signs = torch.stack([first, second], dim=1) * 2 - 1
        return torch.nn.functional.logsigmoid(signs * own)

    def chances(self) -> Tensor:
        """Probability of each sequence, [4], without gradient."""
        return self.logprobs().detach().sum(dim=1).exp()

    def gradient(self, value: Tensor) -> Tensor:
        (found,) = torch.autograd.grad(value, self.logits)
        return found


def binomial(n: int, k: int, p: float) -> float:
    return math.comb(n, k) * p**k * (1 - p) ** (n - k)
