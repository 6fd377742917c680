"""Settings of the code verifier."""

from typing import Literal

from pydantic import Field, model_validator

from peira.config.channel import ChannelConfig


class CodeConfig(ChannelConfig):
    """Programs judged by running them against unit tests in a sandbox."""

    kind: Literal["code"] = "code"
    timeout_s: float | None = Field(default=10.0, gt=0)
    """Wall-clock seconds for one attempt, in place of `judging.timeout_s`."""
    language: Literal["python", "c"] = "python"
    """What programs are written in; C is compiled by gcc in the sandbox and runs whole programs only."""
    extract: Literal["last", "first", "only", "whole"] = "last"
    """Which fenced block is the program; only: there must be exactly one; whole: the text as it stands."""
    scoring: Literal["all", "fraction"] = "all"
    """all: every test must pass; fraction: the share of tests that pass."""
    float_tolerance: float | None = Field(default=None, gt=0)
    """Relative and absolute; None compares floats exactly."""
    nan_equal: bool = False
    """Whether an expected nan can be met at all."""
    containers: Literal["exact", "loose"] = "exact"
    """exact: a tuple is no list; loose: sequences and mappings by their items."""
    whitespace: Literal["exact", "lines", "tokens"] = "lines"
    """For printed text. lines: blanks at line ends and blank lines at the end do not count; tokens: words."""
    run_s: float = Field(default=4.0, gt=0)
    """Wall-clock seconds for one test."""
    total_s: float = Field(default=6.0, gt=0)
    """Wall-clock seconds for all tests of a task; what does not get its turn has timed out. Keep it two
    seconds and more below `timeout_s`: what that one ends is unjudged, what this one ends is judged 0."""
    memory_bytes: int = Field(default=512 * 1024**2, ge=64 * 1024**2)
    """Address space of a program."""
    output_bytes: int = Field(default=1024**2, ge=1024)
    """Of printed text, and of a returned value."""
    processes: int = Field(default=1, ge=1, le=256)
    """1 refuses fork; threads are allowed either way."""
    packages: tuple[str, ...] = ()
    """Folders of packages that programs may import (site-packages), shown read-only."""
    warm: int = Field(default=1, ge=0, le=16)
    """Sandboxes that wait, started, in each worker."""
    allow_unsafe: bool = False
    """Run without isolation where there is no bubblewrap: on machines that may be lost."""

    @model_validator(mode="after")
    def _suite_ends_before_its_worker(self) -> "CodeConfig":
        if self.timeout_s is not None and self.total_s + 2 > self.timeout_s:
            raise ValueError(
                f"total_s = {self.total_s}: expected at most timeout_s - 2 = {self.timeout_s - 2}, "
                "or programs that hang go unjudged instead of being judged 0; raise timeout_s"
            )
        return self
