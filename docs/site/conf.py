"""The configuration of Sphinx."""

import ata_gym

project = "ata-gym"
author = "The ata-gym authors"
version = release = ata_gym.__version__
extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "myst_nb",
    "sphinx_design",
    "sphinx_copybutton",
    "docs.site.extension",
]
default_role = "literal"  # what a docstring has in single backticks is code
exclude_patterns = ["**/.ipynb_checkpoints"]
nitpicky = True
# Names of other packages have no pages here, nor have private ones and type variables.
nitpick_ignore_regex = [
    ("py:.*", r"(?!ata_gym\b|ata_policies\b).*"),
    ("py:.*", r".*\.(\w*T|Number|Item|_\w+|all_tasks|last_worker|Annotated\[.*)(\..*)?"),
]
highlight_language = "none"
smartquotes = False  # -- begins an option

autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "ignore-module-all": True, "show-inheritance": True}
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
# Aliases are told by their names, where no other module has the same name for something else.
_ALIASES = {
    "ata_gym.typing": ("Floats", "Floats32", "Ints", "Ints32", "Bits", "Mask"),
    "ata_gym.utils.ranges": ("Counts", "NonNegative", "Squares", "Reals", "Fractions", "Wholes"),
    "ata_gym.pools.pool": ("LatencyData",),
}
autodoc_type_aliases = {
    name: f"{module}.{name}" for module, names in _ALIASES.items() for name in names
} | {"ArrayLike": "ArrayLike"}
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
napoleon_numpy_docstring = False
napoleon_use_rtype = False

myst_enable_extensions = ["dollarmath", "colon_fence", "html_image", "attrs_inline"]
myst_heading_anchors = 4
myst_dmath_allow_digits = False
nb_execution_mode = "off"  # a notebook is shown with the output that it holds
nb_merge_streams = True
html_math_renderer = "mathml"

html_theme = "pydata_sphinx_theme"
html_title = f"ata-gym {release}"
html_static_path = ["static"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "ata-gym"},
    "navbar_align": "left",
    "navbar_persistent": ["search-button"],
    "header_links_before_dropdown": 8,
    "collapse_navigation": True,
    "show_prev_next": False,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}
copyright = f"{author}, version {release}"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
