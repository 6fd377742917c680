"""Unbiased pass@k: the chance that at least one of k samples is right, from n samples of which c are."""

from peira.errors import DataError


def pass_at_k(num_samples: int, num_correct: int, k: int) -> float:
    """1 - C(n - c, k) / C(n, k) for n samples with c correct, in a form that cannot overflow.

    Unbiased over the draw of the n samples; 1 when fewer than k are wrong. Average it over questions. At
    k = n it is all or nothing and so has a large variance: draw at least twice the largest k.

    Raises:
        DataError: k or num_correct lies outside [1, n] or [0, n].

    Source: Chen et al. 2021 (arXiv:2107.03374), eq. 1.
    """
    if not 1 <= k <= num_samples:
        raise DataError(f"pass_at_k: k = {k}: expected 1 to {num_samples} (the number of samples)")
    if not 0 <= num_correct <= num_samples:
        raise DataError(f"pass_at_k: num_correct = {num_correct}: expected 0 to {num_samples}")
    if num_samples - num_correct < k:
        return 1.0
    miss = 1.0
    for i in range(num_samples - num_correct + 1, num_samples + 1):
        miss *= 1.0 - k / i
    return 1.0 - miss
