"""Every setting of a run, one file per room. Loads in milliseconds: no torch."""
