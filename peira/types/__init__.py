"""Records that travel from stage to stage: frozen, standard library only."""
