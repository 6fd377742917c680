"""Sphinx settings: `make docs`."""

from peira import __version__

project = "peira"
author = "The peira authors"
version = release = __version__
extensions = ["myst_parser"]
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "peira"
