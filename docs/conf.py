"""Sphinx settings of the documentation site (`make docs`)."""

project = "linkscope"
copyright = "linkscope contributors, Apache-2.0"
extensions = ["myst_parser"]
myst_heading_anchors = 4
myst_enable_extensions = ["attrs_inline"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "linkscope"
html_copy_source = False
suppress_warnings = ["myst.header"]  # pages may start a section at level four
