"""What is added to a reward before advantages are taken."""


def overlong_penalty(num_tokens: int, *, max_tokens: int, buffer_tokens: int, penalty: float) -> float:
    """What a completion of this length adds to its reward: 0, falling to -penalty at `max_tokens`.

    Nothing up to max_tokens - buffer_tokens, then linear. The reward that tells collapsed groups apart should
    be taken before this is added: lengths make an all-wrong group look mixed.

    Source: Yu et al. 2025 (arXiv:2503.14476), section 3.4, where `penalty` is 1.
    """
    if buffer_tokens == 0:
        return 0.0
    over = num_tokens - (max_tokens - buffer_tokens)
    return -penalty * min(max(over / buffer_tokens, 0.0), 1.0)
