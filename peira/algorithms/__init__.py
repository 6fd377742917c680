"""Pure tensor functions: the formula sheet. No files, clocks, random numbers or process groups."""
