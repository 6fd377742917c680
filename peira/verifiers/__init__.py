"""Text in, verdict out. No torch: starts fast, runs anywhere."""
