"""Tables of logits: draws, and gradients that keep copies apart."""

import torch

from peira.build.algorithm import build_algorithm
from peira.config.algorithm import AlgorithmConfig
from peira.studies.table import advantages, draw, gradient, scorer_of, train_batch


def algorithm(name="grpo", **settings):
    return build_algorithm(AlgorithmConfig.model_validate({"name": name, **settings}), max_tokens=1)


def test_draws_have_the_shares_of_the_softmax():
    logits = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]], dtype=torch.float64).log()
    arms = draw(logits, 40_000, torch.Generator().manual_seed(0))
    shares = torch.stack([(arms == v).double().mean(dim=1) for v in range(3)], dim=1)
    assert (shares - logits.exp()).abs().max() < 0.01  # four standard errors of .0025


def test_a_uniform_at_the_edge_is_still_an_arm():
    certain = torch.tensor([[-1e9, 0.0, -1e9]])
    assert draw(certain, 100, torch.Generator().manual_seed(0)).unique().tolist() == [1]


def test_the_gradient_is_the_mean_of_advantage_times_score():
    # two arms at p = (.5, .5), G = 2, arms (0, 1), rewards (1, 0): scaled advantages (1, -1);
    # scores (.5, -.5) and (-.5, .5); ascent (1/2) [(.5, -.5) + (.5, -.5)] = (.5, -.5)
    logits = torch.zeros(1, 2, dtype=torch.float64)
    arms = torch.tensor([[0, 1]])
    a = advantages(algorithm(std_eps=0.0), torch.tensor([[[1.0, 0.0]]], dtype=torch.float64))
    score = scorer_of(arms)
    found = gradient(algorithm(), logits, score, train_batch(a.flatten(), old=score(logits)))
    torch.testing.assert_close(-found, torch.tensor([[0.5, -0.5]], dtype=torch.float64))


def test_copies_do_not_see_each_other():
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(3, 4, generator=generator, dtype=torch.float64)
    arms = draw(logits, 8, generator)
    a = torch.randn(3, 8, generator=generator, dtype=torch.float64)

    def step(rows):
        score = scorer_of(arms[rows])
        batch = train_batch(a[rows].flatten(), old=score(logits[rows]))
        return gradient(algorithm(), logits[rows], score, batch, copies=len(rows))

    together = step([0, 1, 2])
    for row in range(3):
        torch.testing.assert_close(together[row], step([row])[0])
