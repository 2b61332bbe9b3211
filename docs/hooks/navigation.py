"""The order of the pages, in one place: pages themselves stay plain Markdown without directives."""

from __future__ import annotations

from sphinx.application import Sphinx

TREE: dict[str, list[str]] = {
    "index": [
        "start/install",
        "start/ten-minutes",
        "tutorials/index",
        "howto/index",
        "concepts/index",
        "reference/index",
        "results",
        "development/index",
    ],
    "tutorials/index": [
        "01_first_model",
        "02_own_data",
        "03_own_encoder",
        "04_add_a_smoothing",
        "05_log_z",
    ],
    "howto/index": [
        "own-data",
        "likelihoods",
        "conditions",
        "large-data",
        "train",
        "networks",
        "own-encoder",
        "own-loop",
        "conditional",
        "boltzmann-machine",
        "scikit-learn",
        "tune",
        "choose-beta",
        "choose-estimator",
        "diagnostics",
        "add-a-part",
        "share",
        "playground",
        "dwave",
        "reproduce",
        "cluster",
        "slurm",
        "ray",
        "torchrun",
        "warm-start",
        "faq",
    ],
    "concepts/index": [
        "idea",
        "soft-bits",
        "relaxations",
        "methods",
        "bounds",
        "samplers",
        "log-z",
        "replicas",
        "notation",
        "references",
    ],
    "reference/index": [
        "cli",
        "config",
        "structures",
        "methods",
        "api",
        "boltzmann",
        "smoothing",
        "distributions",
        "samplers",
        "objectives",
        "evaluation",
        "parts",
        "training",
        "records",
        "data",
        "dwave",
    ],
    "development/index": ["architecture", "numerics", "sampling", "experiments", "speed", "faults", "log", "release"],
}
"""Page, and the pages below it. A page that is in no list is an error of the build."""


def add_tree(app: Sphinx, name: str, source: list[str]) -> None:
    """Append its list to a page that has one."""
    if name in TREE:
        source[0] += "\n\n```{toctree}\n:hidden:\n\n" + "\n".join(TREE[name]) + "\n```\n"


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.connect("source-read", add_tree)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
