"""Configuration -> code verifier."""

import importlib.util
from pathlib import Path

from peira.config.verifier_code import CodeConfig
from peira.sandbox import Limits, open_sandbox
from peira.verifiers.code import CodeVerifier, Comparison


def build_code_verifier(config: CodeConfig) -> CodeVerifier:
    """The code verifier, once a sandbox has been seen to work.

    Raises:
        SandboxError: no isolation here and `allow_unsafe` is off.
    """
    limits = Limits(
        wall_s=config.run_s,
        memory_bytes=config.memory_bytes,
        output_bytes=config.output_bytes,
        processes=config.processes,
    )
    found = importlib.util.find_spec("pytest")
    site = (str(Path(found.origin).parents[1]),) if found is not None and found.origin else ()
    return CodeVerifier(
        sandbox=open_sandbox(
            limits=limits,
            warm=config.warm,
            readable=config.packages,
            python_path=config.packages,
            allow_unsafe=config.allow_unsafe,
        ),
        pytest_sandbox=open_sandbox(
            warm=min(config.warm, 1),
            readable=site,
            python_path=site,
            preload=("pytest",) if site else (),
            allow_unsafe=config.allow_unsafe,
        ),
        language=config.language,
        extract=config.extract,
        scoring=config.scoring,
        comparison=Comparison(
            float_tolerance=config.float_tolerance,
            nan_equal=config.nan_equal,
            containers=config.containers,
            whitespace=config.whitespace,
        ),
        total_s=config.total_s,
    )
