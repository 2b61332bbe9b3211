"""The folder of compiled code: where it is, export and import, and what torch finds in it."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from cli.command import caller
from gpu import with_torch_warnings
from test_package import python
from torch import Tensor
from torch._dynamo.utils import counters

from softspin import compile_cache
from softspin.errors import CacheError
from softspin.files import cache_folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SOFTSPIN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "compiled"


def test_the_command_line_sets_the_folders_unless_they_are_set(folder: Path) -> None:
    """One process for both: the second command finds them set."""
    code = """
import os, sys
from softspin.cli import main
sys.argv = ["softspin", "--version"]
names = "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"
for name in names:
    os.environ.pop(name, None)
for given in ({}, dict(zip(names, "ab"))):
    os.environ |= given
    try:
        main()
    except SystemExit:
        print(*(os.environ[name] for name in names))
"""
    printed = python(code, SOFTSPIN_CACHE=os.environ["SOFTSPIN_CACHE"]).splitlines()
    assert printed[1::2] == [f"{folder / 'inductor'} {folder / 'triton'}", "a b"]


def test_softspin_cache_is_the_cache_of_everything(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_folder() == folder.parent
    monkeypatch.setenv("SOFTSPIN_CACHE", "~/here")
    assert cache_folder() == Path.home() / "here"
    monkeypatch.setenv("SOFTSPIN_CACHE", "")
    assert cache_folder().name == "softspin"


def fill(folder: Path) -> dict[str, bytes]:
    content = {"inductor/aa/kernel.py": b"code", "triton/XYZ/sweep.cubin": b"\0\1"}
    paths = json.dumps({"child_paths": {"sweep.cubin": str(folder / "triton/XYZ/sweep.cubin")}})
    content["triton/XYZ/__grp__sweep.json"] = paths.encode()
    for name, data in content.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return content


def test_export_and_import(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    call = caller(capsys, monkeypatch)
    file = tmp_path / "new" / "compiled.tar.gz"
    assert call("cache", "show", "--json").json == {"folder": str(folder), "bytes": 0}
    assert "there is no compiled code" in call("cache", "export", file).err
    content = fill(folder)
    assert call("cache", "show", "--json").json["bytes"] == sum(map(len, content.values()))
    assert call("cache", "export", file).code == 0
    assert call("cache", "clear").code == 0
    assert not folder.exists()
    monkeypatch.setenv("SOFTSPIN_CACHE", str(tmp_path / "other"))
    assert "0.0 MB" in call("cache", "import", file).out
    found = tmp_path / "other" / "compiled"
    group = "triton/XYZ/__grp__sweep.json"
    content[group] = content[group].replace(str(folder).encode(), str(found).encode())
    assert {str(p.relative_to(found)): p.read_bytes() for p in found.rglob("*") if p.is_file()} == content


@pytest.mark.parametrize("name", ["inductor/../../outside", "other/file", "/tmp/file"])
def test_an_archive_of_something_else_is_rejected(name: str, folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "odd.tar.gz"
    with tarfile.open(file, "w:gz") as archive:
        archive.addfile(tarfile.TarInfo(name), io.BytesIO())
    with pytest.raises(CacheError, match="not written by softspin cache export"):
        compile_cache.restore(file)
    assert not list(tmp_path.rglob("outside"))
    file.write_bytes(b"no archive")
    with pytest.raises(CacheError, match="is damaged, or was not written by softspin cache export"):
        compile_cache.restore(file)


TRITON = """
import sys
from pathlib import Path
import torch
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import ASTSource
from triton.runtime import driver

class Absent:
    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)
    def get_current_device(self):
        return 0
    def get_current_stream(self, device):
        return 0

def fails(*_):
    raise RuntimeError("this kernel is compiled again")

driver.set_active(Absent())
from softspin import compile_cache
compile_cache.use_compiled_folder()
from softspin.kernels.gpu_noise import fill

def compile():
    fill.warmup(torch.zeros(2, 2, dtype=torch.int64), torch.zeros(2, 9), 9, 1, BLOCK=1024, grid=(1, 2))

if len(sys.argv) > 1:
    ASTSource.make_ir = fails
    try:
        compile()
    except RuntimeError as error:
        print(error)
    compile_cache.restore(Path(sys.argv[1]))
compile()
"""
"""Compiles a kernel for an H200, without one. Given an archive, it tries without that first, and cannot compile."""


def test_triton_finds_its_kernels_in_an_imported_folder(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton", reason="Triton is not installed")

    def kernel(*archive: Path) -> tuple[str, str]:
        unset = {"TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"}
        environment = {name: value for name, value in os.environ.items() if name not in unset}
        run = subprocess.run(
            [sys.executable, "-c", TRITON, *map(str, archive)], env=environment | {"TRITON_INTERPRET": "0"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        return run.stdout, run.stderr

    assert kernel() == ("", "")
    compile_cache.export(tmp_path / "compiled.tar.gz")
    folder.rename(tmp_path / "away")
    monkeypatch.setenv("SOFTSPIN_CACHE", str(tmp_path / "other"))
    assert kernel(tmp_path / "compiled.tar.gz") == ("this kernel is compiled again\n", "")


class Doubled(torch.autograd.Function):
    """A product, for which the compiler generates no code of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x @ x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grad @ x.mT


@with_torch_warnings
def test_functions_with_custom_gradients_are_found_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled once, then found, and compiled again after a change of the kernels."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    seen, values = [], []
    for digest in ("one", "one", "other"):
        monkeypatch.setattr(compile_cache, "kernels_digest", lambda digest=digest: digest)
        torch.compiler.reset()
        counters.clear()
        x = torch.eye(3).mul_(2).requires_grad_()
        with compile_cache.reusing_compiled_code():
            y = torch.compile(Doubled.apply)(x)
            y.backward(torch.ones(3, 3))
        values.append((y.tolist(), x.grad.tolist() if x.grad is not None else None))
        seen.append({name: counters["aot_autograd"][f"autograd_cache_{name}"] for name in ("miss", "hit", "bypass")})
    assert seen == [
        {"miss": 1, "hit": 0, "bypass": 0},
        {"miss": 0, "hit": 1, "bypass": 0},
        {"miss": 1, "hit": 0, "bypass": 0},
    ]
    assert values[0] == values[1] == values[2]


def test_the_digest_is_of_the_files_with_kernels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "matmul.py").write_text("tile = 1")
    monkeypatch.setattr(compile_cache, "__file__", str(tmp_path / "compile_cache.py"))
    one = compile_cache.kernels_digest.__wrapped__()
    (tmp_path / "kernels" / "matmul.py").write_text("tile = 2")
    assert one != compile_cache.kernels_digest.__wrapped__()


def test_advice_of_torch_about_tf32_is_not_shown() -> None:
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        compile_cache.ignore_advice()
        warnings.warn(
            "TensorFloat32 tensor cores for float32 matrix multiplication available but not enabled.", stacklevel=1
        )
        warnings.warn("something else", stacklevel=1)
    assert [str(one.message) for one in shown] == ["something else"]
