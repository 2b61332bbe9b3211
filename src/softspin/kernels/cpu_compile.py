"""How the CPU code is compiled, and how it is called: C functions of one address, which every thread runs at once."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, TypeVar

from llvmlite import ir  # type: ignore[import-untyped]
from numba import cfunc, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

F = TypeVar("F", bound=Callable[..., Any])
_kept: list[Any] = []  # own the code of the entries


def jit(**options: Any) -> Callable[[F], F]:
    """numba's decorator for what is called from compiled code."""
    decorate: Callable[[F], F] = njit(nogil=True, error_model="numpy", **options)
    return decorate


def entry(function: Callable[[Any], None]) -> Any:
    """As a C function of one address: compiled at once, and kept on disk where some folder for it can be written."""
    signature = types.void(types.intp)
    try:
        compiled = cfunc(signature, cache=True)(function)
    except RuntimeError:  # no writable place at all
        compiled = cfunc(signature)(function)
    _kept.append(compiled)
    address: Any = compiled.address
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)


def _pointer(_: Any, address: Any) -> Any:
    """An address as `carray` takes it."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], cgutils.voidptr_t)

    return types.voidptr(types.intp), codegen


def _take(_: Any, address: Any) -> Any:
    """The number at this address, which is then one more; no two threads get the same."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word = ir.IntType(64)
        return builder.atomic_rmw("add", builder.inttoptr(args[0], word.as_pointer()), word(1), "monotonic")

    return types.int64(types.intp), codegen


pointer: Any = intrinsic(_pointer)
take: Any = intrinsic(_take)
