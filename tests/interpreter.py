"""Triton's interpreter, without work that it repeats."""

from __future__ import annotations

import importlib.util
import os
from typing import Any


def patch_once_per_launch() -> None:
    """Replace the functions of triton.language once in a launch, for each module of kernels.

    The interpreter replaces them again at each call of a function by a kernel, with the same result, which takes a
    quarter of its time. Its names are private: where a version of Triton has others, nothing is changed.
    """
    if os.environ.get("TRITON_INTERPRET") != "1" or importlib.util.find_spec("triton") is None:
        return
    from triton.runtime import interpreter

    if not (hasattr(interpreter, "_patch_lang") and hasattr(interpreter, "_LangPatchScope")):
        return
    patch = interpreter._patch_lang
    done: set[int] = set()

    class Scope(interpreter._LangPatchScope):  # type: ignore[misc]
        """Only a launch restores what it has replaced; functions that a kernel calls leave that to it."""

        def restore(self) -> None:
            super().restore()
            done.clear()

    def patch_once(fn: Any) -> Any:
        scope = Scope()
        if id(fn.__globals__) not in done:
            done.add(id(fn.__globals__))
            scope._changes = patch(fn)._changes
        return scope

    interpreter._patch_lang = patch_once
