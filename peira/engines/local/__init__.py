"""Sampler and learner in one process."""
