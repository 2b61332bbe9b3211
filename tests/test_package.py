"""The package as a whole: layers, what importing it does, the command line."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import softspin
from softspin.cores import GPU_DRIVER

SOURCE = Path(softspin.__file__).parent
ROOT = SOURCE.parents[1]

# From bottom to top. A module may import its own package and lower layers, nothing else.
LAYERS = [
    {"cores", "project"},
    {"errors", "deprecation"},
    {"numerics", "precision", "paper", "structures", "typed", "graphs", "random", "files", "parallel", "seals"},
    {"parts", "schema", "compile_cache"},
    {"smoothing", "data", "config"},
    {"records"},
    {"provenance", "formatting"},
    {"kernels"},
    {"distributions"},
    {"samplers"},
    {"dwave"},
    {"nets"},
    {"likelihoods"},
    {"priors"},
    {"objectives"},
    {"methods"},
    {"conditions"},
    {"model"},
    {"stored_model"},
    {"evaluation"},
    {"custom_nets"},
    {"training"},
    {"timing"},
    {"sharing"},
    {"trained"},
    {"boltzmann_machine"},
    {"run_config"},
    {"api"},
    {"sklearn"},
    {"experiments", "playground"},
    {"report"},
    {"cli"},
    {"__main__"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
TYPES_ONLY = {("parts", "config"), ("conditions", "model")}
"""Upward imports for type checkers only: a part is checked against a config, a condition is given to a model."""


def imports(tree: ast.AST, *, types: bool = True) -> set[str]:
    """Top-level modules of softspin that a module imports, also in functions; with or without `if TYPE_CHECKING`."""
    for_types = [
        node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    left_out = set() if types else {inner for block in for_types for child in block.body for inner in ast.walk(child)}
    found = set()
    for node in ast.walk(tree):
        names: list[str] = []
        if node in left_out:
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        found |= {n.split(".")[1] for n in names if n.startswith("softspin.") and n.split(".")[1] in LEVEL}
    return found


def upward_imports(part: str, source: str) -> set[str]:
    tree = ast.parse(source)
    at_run_time = imports(tree, types=False)
    allowed = {other for one, other in TYPES_ONLY if one == part and other not in at_run_time}
    return {other for other in imports(tree) - allowed if other != part and LEVEL[other] >= LEVEL[part]}


def test_every_import_points_down() -> None:
    modules = [path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py"]
    assert len(modules) > 15
    for path in modules:
        part = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        assert part in LEVEL, f"{part} has no layer; add it to LAYERS"
        wrong = upward_imports(part, path.read_text())
        assert not wrong, f"{path.relative_to(SOURCE)} imports upwards: {wrong}"


def test_the_layer_test_detects_an_upward_import() -> None:
    assert upward_imports("smoothing", "from softspin.distributions import Boltzmann") == {"distributions"}
    assert upward_imports("smoothing", "def f():\n    import softspin.data") == {"data"}
    assert upward_imports("objectives", "from softspin.distributions import Boltzmann") == set()
    typed = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from softspin.config import Config"
    assert upward_imports("parts", typed) == set()
    assert upward_imports("parts", f"{typed}\ndef f():\n    from softspin.config import Config") == {"config"}
    assert upward_imports("graphs", typed) == {"config"}


def test_every_error_type_is_in_errors() -> None:
    for path in SOURCE.rglob("*.py"):
        if path != SOURCE / "errors.py":
            classes = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.ClassDef)]
            bases = [ast.unparse(base) for one in classes for base in one.bases]
            assert not [base for base in bases if base.endswith(("Error", "Exception"))], path.relative_to(SOURCE)


def python(code: str, **env: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, **env}
    )
    return result.stdout.strip()


def test_importing_changes_nothing_global() -> None:
    assert python("import sys, softspin; print('torch' in sys.modules)") == "False"
    code = """
import logging, torch, numpy
def world():
    return (torch.random.initial_seed(), torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_num_threads(),
            torch.get_float32_matmul_precision(), torch.backends.cuda.matmul.allow_tf32,
            torch.are_deterministic_algorithms_enabled(), torch.distributions.Distribution._validate_args,
            bytes(torch.random.get_rng_state().numpy()), numpy.random.get_state()[1].tobytes(), logging.root.handlers,
            logging.root.level, __import__('os').environ.copy(), __import__('warnings').filters[:])
before = world()
import softspin.data, softspin.objectives, softspin.methods, softspin.cli.app
print(before == world())
"""
    assert python(code) == "True"


def test_every_public_name_exists() -> None:
    for name in softspin.__all__:
        assert getattr(softspin, name) is not None
    assert set(dir(softspin)) == set(softspin.__all__)
    with pytest.raises(AttributeError, match="module 'softspin' has no attribute 'nonsense'"):
        _ = softspin.nonsense
    with pytest.raises(AttributeError, match=r"no attribute 'fit_bolzmann'; did you mean softspin\.fit_boltzmann\?"):
        _ = softspin.fit_bolzmann


def test_extras_are_imported_only_when_they_are_used() -> None:
    code = """
import sys, softspin.data, softspin.objectives, softspin.kernels.cpu
extras = (
    'matplotlib', 'sklearn', 'scipy', 'mlxtend', 'pandas', 'triton', 'dimod', 'dwave_networkx', 'numba', 'PIL', 'ray',
)
library = [m for m in (*extras, 'rich', 'typer') if m in sys.modules]
import softspin.cli.app
print(library, [m for m in extras if m in sys.modules])
"""
    assert python(code) == "[] []"


def test_the_command_line_binds_threads_unless_the_variable_is_set() -> None:
    """One process for both: the second command finds the variable set."""
    code = """
import os, sys
from softspin.cli import main
sys.argv = ["softspin", "--version"]
os.environ.pop("OMP_PROC_BIND", None)
for value in (None, "close"):
    if value is not None:
        os.environ["OMP_PROC_BIND"] = value
    try:
        main()
    except SystemExit:
        print(os.environ["OMP_PROC_BIND"])
"""
    bound = "false" if GPU_DRIVER.exists() else "true"
    assert python(code).splitlines()[1::2] == [bound, "close"]
