"""Docstrings of the public API: every argument, result and error is described, in Google's convention."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pytest

PACKAGES = (
    "softspin", "softspin.boltzmann_machine", "softspin.config", "softspin.data", "softspin.distributions",
    "softspin.distributions.couplings", "softspin.distributions.exact", "softspin.dwave", "softspin.evaluation",
    "softspin.experiments", "softspin.kernels", "softspin.likelihoods", "softspin.methods", "softspin.nets",
    "softspin.objectives", "softspin.parts", "softspin.priors", "softspin.random", "softspin.records",
    "softspin.samplers", "softspin.samplers.diagnostics", "softspin.samplers.gibbs", "softspin.samplers.log_z",
    "softspin.samplers.population", "softspin.samplers.tempering", "softspin.sharing", "softspin.sklearn",
    "softspin.smoothing", "softspin.training", "softspin.training.trainer",
)  # fmt: skip
"""Modules that users import from. Their exports are the public API."""


def exported(module: Any) -> Iterator[tuple[str, Any]]:
    """Names in `__all__` of a module; without it, names that the module defines."""
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
    for name in sorted(getattr(module, "__all__", own)):
        found = getattr(module, name)
        if not name.startswith("_") and getattr(found, "__module__", "").startswith("softspin"):
            yield name, found


def functions(package: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Functions, and public methods that their class is the first to have."""
    for name, found in exported(importlib.import_module(package)):
        if inspect.isfunction(found):
            yield name, found
        elif inspect.isclass(found):
            own = inspect.isfunction(vars(found).get("__init__")) and not getattr(found, "_is_protocol", False)
            if own and not dataclasses.is_dataclass(found):
                yield name, found
            for key, value in vars(found).items():
                method = value.__func__ if isinstance(value, classmethod | staticmethod) else value
                inherited = any(key in vars(base) for base in found.__mro__[1:])
                if inspect.isfunction(method) and not key.startswith("_") and not inherited:
                    yield f"{name}.{key}", method


def raises(function: Callable[..., Any]) -> set[str]:
    """Names of the errors that a function raises itself."""
    try:
        code = vars(function)["__init__"] if inspect.isclass(function) else inspect.unwrap(function)
        tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, SyntaxError):
        return set()
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            name = ast.unparse(node.exc.func)
            found.add(name.rpartition(".")[2])
    return {name for name in found if re.fullmatch(r"[A-Z]\w*(Error|Exception|Warning)", name)}


def missing(function: Callable[..., Any]) -> list[str]:
    """Missing parts of a docstring."""
    text = inspect.getdoc(function) or ""
    if text.startswith("Deprecated name of"):
        return []
    signature = inspect.signature(function.__init__ if inspect.isclass(function) else function)
    names = [one for one in signature.parameters if one not in ("self", "cls") and not one.startswith("_")]
    lacks = []
    if names:
        section = re.search(r"^Args:\n((?:[ ]+.*\n?|\n)+)", text, re.MULTILINE)
        described = re.findall(r"^ {4}\*{0,2}(\w+)(?: \([^)]*\))?:", section[1], re.MULTILINE) if section else []
        lacks += [f"Args: {name}" for name in names if name not in described]
    returns = not inspect.isclass(function) and signature.return_annotation not in (None, "None", signature.empty)
    if returns and not re.search(r"^(Returns|Yields):$", text, re.MULTILINE):
        lacks.append("Returns:")
    described = re.findall(r"^ {4}(\w+):", text, re.MULTILINE)
    return lacks + [f"Raises: {name}" for name in sorted(raises(function)) if name not in described]


@pytest.mark.parametrize("package", PACKAGES)
def test_the_docstrings_of_the_public_api_are_complete(package: str) -> None:
    lacks = {name: missing(function) for name, function in functions(package)}
    assert not {name: what for name, what in lacks.items() if what}
