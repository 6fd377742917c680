"""peira: reinforcement learning with verifiable rewards."""

__version__ = "0.1.0"
__all__ = ["__version__"]
