"""The composition root: configuration in, objects out. One `match` per choice."""
