"""Programs judged by running them: what is expected stays here, what is untrusted runs in a sandbox."""

from peira.verifiers.code.compare import Comparison
from peira.verifiers.code.extract import extract_code
from peira.verifiers.code.gap import GapReport
from peira.verifiers.code.language import LANGUAGES
from peira.verifiers.code.suite import CodeStatus
from peira.verifiers.code.verifier import CodeVerifier

__all__ = ["LANGUAGES", "CodeStatus", "CodeVerifier", "Comparison", "GapReport", "extract_code"]
