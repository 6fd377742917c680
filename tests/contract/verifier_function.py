"""A user's function, as short as they come."""


def ends_with_answer(completion: str, answer: str) -> bool:
    return completion.strip() == answer
