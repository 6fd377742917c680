"""The straight line: collect, score, pack."""
