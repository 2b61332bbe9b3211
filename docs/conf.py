"""Sphinx builds the documentation into site/ (`make docs`); every warning is an error."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "hooks"))
# A deprecated name in a hook or a tutorial is a mistake, wherever it is used.
warnings.filterwarnings("error", category=FutureWarning, message=".*is now called")

from softspin import __version__

project = "softspin"
author = "The softspin authors"
version = release = __version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.githubpages",
    "myst_parser",
    "sphinx_copybutton",
    "navigation",
    "facts",
    "formulas",
    "notebooks",
    "references",
]
exclude_patterns = ["hooks", "pictures", "**/__pycache__"]
# A short name in a docstring, such as `bits`, may be that of several attributes; the first one is linked.
suppress_warnings = ["ref.python"]
show_warning_types = True

# Markdown: ```math is a formula, headings have anchors, and an image may have attributes.
myst_enable_extensions = ["attrs_inline", "deflist"]
myst_fence_as_directive = ["math"]
myst_heading_anchors = 4
highlight_language = "none"
smartquotes = False  # it would turn `--set` in help texts into a dash
html_math_renderer = "mathml"

# The reference: what has a docstring, in the order of the source, with Google's sections.
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_inherit_docstrings = False  # what overrides a documented method is documented there
napoleon_numpy_docstring = False
napoleon_custom_sections = ["Shapes", "Shape", "Formula"]
napoleon_preprocess_types = False
add_module_names = False
python_maximum_signature_line_length = 120  # with the modules of the types, which are not shown
python_use_unqualified_type_names = True
default_role = "literal"
toc_object_entries_show_parents = "hide"

# Pages open from disk and load nothing from elsewhere.
html_theme = "furo"
html_title = "softspin"
pygments_dark_style = "github-dark"
html_static_path = ["hooks/site.css"]
html_css_files = ["site.css"]
html_extra_path = [name for name in ("playground.html", "report.html") if Path(__file__).with_name(name).exists()]
html_copy_source = False
html_show_search_summary = False  # it would fetch every page, which a browser refuses for pages on disk
html_show_sphinx = False
html_show_copyright = False
BLUE = {"color-api-name": "var(--color-brand-content)", "color-api-pre-name": "var(--color-brand-content)"}
html_theme_options = {
    "light_css_variables": {**BLUE, "color-brand-primary": "#3f51b5", "color-brand-content": "#3949ab"},
    "dark_css_variables": {**BLUE, "color-brand-primary": "#9fa8da", "color-brand-content": "#9fa8da"},
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
