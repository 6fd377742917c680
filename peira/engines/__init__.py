"""Machines behind the seven verbs of `protocol.py`."""
