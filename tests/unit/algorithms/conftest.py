"""Every shape in a signature of `peira.algorithms` is checked while these tests run."""

from jaxtyping import install_import_hook

install_import_hook("peira.algorithms", "beartype.beartype")
