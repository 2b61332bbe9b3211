"""The package as a whole: layers, what importing it does, the README's example, the command line."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import softspin

SOURCE = Path(softspin.__file__).parent
ROOT = SOURCE.parents[1]

# Bottom to top. A module may import its own layer's folder and what stands before it, nothing after.
LAYERS = [
    {"errors"},
    {"numerics", "methods", "recipe", "typed"},
    {"smoothing", "data", "config"},
    {"kernels"},
    {"distributions"},
    {"samplers"},
    {"nn"},
    {"objectives"},
    {"model"},
    {"training", "evaluation"},
    {"experiments"},
    {"report"},
    {"cli"},
    {"__main__"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def imports(tree: ast.AST) -> set[str]:
    """Top-level parts of softspin that a module imports, `if TYPE_CHECKING` and functions included."""
    found = set()
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        found |= {n.split(".")[1] for n in names if n.startswith("softspin.") and n.split(".")[1] in LEVEL}
    return found


def arrows_upwards(part: str, source: str) -> set[str]:
    return {other for other in imports(ast.parse(source)) if other != part and LEVEL[other] >= LEVEL[part]}


def test_every_import_points_down() -> None:
    modules = [path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py"]
    assert len(modules) > 15
    for path in modules:
        part = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        assert part in LEVEL, f"{part} has no layer; add it to LAYERS"
        wrong = arrows_upwards(part, path.read_text())
        assert not wrong, f"{path.relative_to(SOURCE)} imports upwards: {wrong}"


def test_the_layer_test_sees_an_arrow_that_points_up() -> None:
    assert arrows_upwards("smoothing", "from softspin.distributions import Boltzmann") == {"distributions"}
    assert arrows_upwards("smoothing", "def f():\n    import softspin.data") == {"data"}
    assert arrows_upwards("objectives", "from softspin.distributions import Boltzmann") == set()


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


def test_every_public_name_is_there() -> None:
    for name in softspin.__all__:
        assert getattr(softspin, name) is not None
    assert set(dir(softspin)) == set(softspin.__all__)
    with pytest.raises(AttributeError, match="module 'softspin' has no attribute 'nonsense'"):
        _ = softspin.nonsense


def test_extras_are_imported_only_where_they_are_used() -> None:
    code = """
import sys, softspin.data, softspin.objectives, softspin.cli.app
print([m for m in ('matplotlib', 'sklearn', 'scipy', 'mlxtend', 'pandas', 'triton') if m in sys.modules])
"""
    assert python(code) == "[]"


def test_the_readme_example_runs_and_is_short() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    lines = [line for line in example.splitlines() if line.strip()]
    assert len(lines) <= 15
    scope: dict[str, object] = {}
    exec(example, scope)
    bound, weight = scope["w"], scope["weight"]
    assert bound.isfinite().all()  # type: ignore[attr-defined]
    assert weight.grad.isfinite().all()  # type: ignore[attr-defined]
    assert weight.grad.abs().sum() > 0  # type: ignore[attr-defined]


def test_the_command_line_binds_threads_unless_told_otherwise() -> None:
    code = "import os; from softspin.cli import main; import sys; sys.argv = ['softspin', '--version']\n"
    code += "try: main()\nexcept SystemExit: print(os.environ['OMP_PROC_BIND'])"
    assert python(f"import os; os.environ.pop('OMP_PROC_BIND', None)\n{code}").splitlines()[-1] == "true"
    assert python(code, OMP_PROC_BIND="false").splitlines()[-1] == "false"


def test_an_error_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    (tmp_path / "matplotlib.py").write_text("raise ImportError('not here')")
    result = subprocess.run(
        [sys.executable, "-m", "softspin", "demo", "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert result.returncode == 2
    assert result.stderr == "error: pictures need matplotlib; install it with: pip install 'softspin[plot]'\n"


def test_a_disk_error_is_one_line_too(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file, not a folder")
    result = subprocess.run(
        [sys.executable, "-m", "softspin", "demo", "--out", str(tmp_path / "taken")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1


def test_the_demo_leaves_its_picture(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "softspin", "demo", "--out", str(tmp_path / "a" / "b")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "exact log Z" in result.stdout
    assert (tmp_path / "a" / "b" / "softbits.png").read_bytes().startswith(b"\x89PNG")
