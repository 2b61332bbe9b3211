"""The disk cache of compiled CPU kernels: numba's, with a SHA-256 of each file, and without errors that stop sampling.

numba reads damaged files as they are: an error at best, other machine code at worst. Here a damaged file is reported
and compiled again, and a folder that cannot be written is reported and does without the cache.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import pickle
import warnings
from collections.abc import Callable
from typing import Any

from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.ccallback import CFunc
from numba.core.sigutils import normalize_signature

DIGEST_BYTES = 32


class CheckedFiles(IndexDataCacheFile):
    """Index and data files that begin with the SHA-256 of the rest."""

    def _dump(self, obj: Any) -> bytes:
        data: bytes = super()._dump(obj)
        return hashlib.sha256(data).digest() + data

    def _load_index(self) -> dict[Any, str]:
        try:
            with open(self._index_path, "rb") as file:
                version, data = pickle.load(file), file.read()
        except FileNotFoundError:
            return {}
        if version != self._version:
            return {}
        stamp, overloads = _load(data)
        return overloads if stamp == self._source_stamp else {}

    def _load_data(self, name: str) -> Any:
        with open(self._data_path(name), "rb") as file:
            return _load(file.read())


def _load(data: bytes) -> Any:
    """What was dumped; raises ValueError if it was changed since."""
    content = data[DIGEST_BYTES:]
    if hashlib.sha256(content).digest() != data[:DIGEST_BYTES]:
        raise ValueError("it does not have the SHA-256 that was written")
    return pickle.loads(content)


class CheckedCache(FunctionCache):
    """The cache of one function. Its errors become warnings; a damaged cache is emptied.

    Args:
        function: The Python function.

    Raises:
        RuntimeError: There is no writable folder for it.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file = CheckedFiles(
            cache_path=self._cache_path,
            filename_base=f"{self._impl.filename_base}.checked",  # files of numba itself have no SHA-256
            source_stamp=self._impl.locator.get_source_stamp(),
        )

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The stored code; None if there is none, or if it is damaged."""
        try:
            return super().load_overload(sig, target_context)
        except Exception as error:  # unpickling damaged data may raise anything
            _warn(f"compiled code in {self._cache_path} is damaged ({_text(error)}) and is compiled again")
            try:
                self.flush()
            except OSError:
                with contextlib.suppress(OSError):
                    os.unlink(self._cache_file._index_path)
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Store compiled code, if that is possible."""
        try:
            super().save_overload(sig, data)
        except Exception as error:
            _warn(f"compiled code cannot be stored in {self._cache_path} ({_text(error)}); each process compiles it")


def compile_cached(signature: Any, function: Callable[..., Any]) -> Any:
    """Compile a C function, or load it from the cache.

    Args:
        signature: Its types.
        function: The Python function.

    Returns:
        numba's compiled function, with an `address`.
    """
    compiled: Any = CFunc(function, normalize_signature(signature), locals={}, options={})
    with contextlib.suppress(RuntimeError):  # no writable folder
        compiled._cache = CheckedCache(function)
    compiled.compile()
    return compiled


@functools.cache
def _warn(text: str) -> None:
    """Warn once of each text, although there are two functions in one folder."""
    warnings.warn(text, stacklevel=2)


def _text(error: Exception) -> str:
    reason = error.strerror if isinstance(error, OSError) else None
    return " ".join((reason or f"{type(error).__name__}: {error}").split())
