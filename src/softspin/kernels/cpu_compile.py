"""Compile the CPU kernels to C functions of one address, which all threads call concurrently."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, TypeVar

from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from softspin.kernels.cpu_cache import compile_cached

F = TypeVar("F", bound=Callable[..., Any])
_kept: list[Any] = []  # keeps the compiled code alive


def jit(**options: Any) -> Callable[[F], F]:
    """Decorate a function that is called from compiled code."""
    decorate: Callable[[F], F] = njit(nogil=True, error_model="numpy", **options)
    return decorate


def entry(function: Callable[[Any], None]) -> Any:
    """Compile a C function of one address, cached on disk if a cache directory is writable."""
    compiled = compile_cached(types.void(types.intp), function)
    _kept.append(compiled)
    address: Any = compiled.address
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)


def _pointer(_: Any, address: Any) -> Any:
    """Convert an address to a pointer for `carray`."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], cgutils.voidptr_t)

    return types.voidptr(types.intp), codegen


def _take(_: Any, address: Any) -> Any:
    """Atomically read and increment the integer at this address."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word = ir.IntType(64)
        return builder.atomic_rmw("add", builder.inttoptr(args[0], word.as_pointer()), word(1), "monotonic")

    return types.int64(types.intp), codegen


pointer: Any = intrinsic(_pointer)
take: Any = intrinsic(_take)
