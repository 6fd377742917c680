"""Proofs checked by the kernels of Rocq (Coq) and Lean, and what makes the kernel's word count."""
