"""The cache of compiled code: a folder that a later process, or another computer with the same GPU, starts from.

torch.compile and Triton store what they compile, and find it again by its source, the versions of torch and Triton, and
the kind of device. So a folder that does not fit is slow, never wrong. This module does not import torch.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import shutil
import tarfile
import warnings
from collections.abc import Iterator
from pathlib import Path

from softspin.errors import CacheError
from softspin.files import atomic_writer, cache_folder

VARIABLES = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}
"""Environment variables of torch.compile and Triton, with the subfolder that each gets unless it is set."""


def compiled_folder() -> Path:
    """The folder of compiled code, `compiled` in the cache of softspin; it may not exist yet."""
    return cache_folder() / "compiled"


def use_compiled_folder() -> None:
    """Let torch.compile and Triton use the folder, unless their environment variables are set.

    They read the variables when they compile. The command line calls this; a program that imports softspin keeps the
    folders of torch and Triton.
    """
    for variable, name in VARIABLES.items():
        os.environ.setdefault(variable, str(compiled_folder() / name))


def ignore_advice() -> None:
    """Show no advice of torch.compile to allow TF32: the setting `tf32` decides, and users cannot follow it."""
    warnings.filterwarnings("ignore", message="TensorFloat32 tensor cores")


@contextlib.contextmanager
def reusing_compiled_code() -> Iterator[None]:
    """What is compiled in this context is stored in torch's caches, and found there by a later process.

    By default torch stores no function that contains a custom `torch.autograd.Function`. It does not know the code of
    custom operators, of which it has the shapes of results: their files become part of every key.
    """
    import torch.compiler
    from torch._functorch import config

    with (
        config.patch(autograd_cache_allow_custom_autograd_functions=True),
        torch.compiler.config.patch(cache_key_tag=kernels_digest()),  # type: ignore[attr-defined]
    ):
        yield


@functools.cache
def kernels_digest() -> str:
    """Digest of the files with custom operators."""
    digest = hashlib.sha256()
    for path in sorted((Path(__file__).parent / "kernels").glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def size() -> int:
    """Bytes in the folder."""
    return sum(path.stat().st_size for path in compiled_folder().rglob("*") if path.is_file())


def clear() -> None:
    """Delete the folder."""
    shutil.rmtree(compiled_folder(), ignore_errors=True)


def export(file: Path) -> None:
    """Write the folder to one file.

    Args:
        file: The archive, `.tar.gz`.

    Raises:
        CacheError: There is nothing to export.
    """
    folder = compiled_folder()
    if not folder.is_dir():
        raise CacheError(f"there is no compiled code in {folder}; train on a GPU first")
    with atomic_writer(file, parents=True) as out, tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name in VARIABLES.values():
            if (folder / name).is_dir():
                archive.add(folder / name, name)


def restore(file: Path) -> None:
    """Add the content of an exported file to the folder. Compiled code is run: the file must be from a trusted source.

    Args:
        file: The archive.

    Raises:
        CacheError: The file is not such an archive.
    """
    try:
        with tarfile.open(file, "r:gz") as archive:
            names = {Path(member.name).parts[0] for member in archive.getmembers()}
            if not names or not names <= set(VARIABLES.values()):
                raise CacheError(f"{file} was not written by softspin cache export")
            compiled_folder().mkdir(parents=True, exist_ok=True)
            archive.extractall(compiled_folder(), filter="data")
            _relocate(compiled_folder() / VARIABLES["TRITON_CACHE_DIR"])
    except (tarfile.TarError, EOFError) as error:
        raise CacheError(f"{file} is damaged, or was not written by softspin cache export: {error}") from None


def _relocate(folder: Path) -> None:
    """Correct the lists of files in which Triton stores absolute paths."""
    for group in folder.glob("*/__grp__*.json"):
        content = json.loads(group.read_bytes())
        content["child_paths"] = {
            name: str(group.parent / Path(path).name) for name, path in content["child_paths"].items()
        }
        group.write_text(json.dumps(content))
