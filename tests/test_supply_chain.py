"""Pinned versions: hashes of what is installed, the build backend, and the bill of materials."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import tomllib
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pytest

import softspin

ROOT = Path(softspin.__file__).parents[2]
PIP_REQUIREMENT = re.compile(r"([a-z0-9-]+)==(\S+)(?: ; [^\\]+)?((?: \\\n    --hash=sha256:[0-9a-f]{64})+)\n")


def tool(name: str) -> ModuleType:
    """A script of the folder `tools`, as a module."""
    pytest.importorskip("packaging")
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_pinned_version_has_hashes() -> None:
    lock = tool("lock")
    text = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    head, _, rest = text.partition("\n")
    assert head + "\n" == lock.HEADER
    found = PIP_REQUIREMENT.findall(rest)
    assert "".join(match[0] for match in PIP_REQUIREMENT.finditer(rest)) == rest, "there is nothing else in it"
    versions = {name: one for name, one, _ in found}
    assert versions == {name: one for name, one in lock.pinned().items() if name not in lock.OF_THE_MACHINE}


def test_make_installs_with_hashes() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "--no-deps --require-hashes -r $(LOCKED)" in text
    assert text.index("--require-hashes -r") < text.index("$(PIP) -e '.[dev]'"), "else they are installed without"


def test_the_build_backend_is_the_pinned_one() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]
    assert build["requires"] == [f"hatchling=={tool('lock').pinned()['hatchling']}"]


def test_wheels_of_other_versions_and_systems_are_left_out() -> None:
    names = {
        "own-1.2-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl": True,
        "own-1.2-cp312-cp312-manylinux_2_28_aarch64.whl": True,
        "own-1.2-cp39-abi3-manylinux_2_17_x86_64.whl": True,
        "own-1.2-cp310-cp310-manylinux_2_17_x86_64.whl": False,
        "own-1.2-cp311-cp311-win_amd64.whl": False,
        "own-1.2-cp311-cp311-musllinux_1_2_x86_64.whl": False,
        "own-1.2.1-cp311-cp311-manylinux_2_17_x86_64.whl": False,
        "own-1.2.tar.gz": False,
    }
    digests = {name: hashlib.sha256(name.encode()).hexdigest() for name in names}
    lock = tool("lock")
    right = sorted(digests[name] for name, fits in names.items() if fits)
    assert lock.hashes("own", "1.2", digests) == (right, [])
    del digests["own-1.2-cp39-abi3-manylinux_2_17_x86_64.whl"]
    assert lock.hashes("own", "1.2", digests)[1] == ["3.12", "3.13"]
    assert lock.entry("own", "1.2", ["ab"], ["3.13"]) == (
        'own==1.2 ; python_version != "3.13" \\\n    --hash=sha256:ab\n'
    )
    with pytest.raises(SystemExit, match=r"own 1\.3 has no wheel"):
        lock.hashes("own", "1.3", digests)


def test_the_page_of_an_index_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own").mkdir()
    digest = "0" * 64
    page = tmp_path / "own" / "index.html"
    page.write_text(
        f'<a href="../x/own-1.2%2Bcpu.tar.gz#sha256={digest}">own</a> <a href="no-digest-1.0.tar.gz">no</a>'
    )
    opened: list[str] = []

    def open_page(address: str, timeout: float) -> object:
        opened.append(address)
        return page.open("rb")

    lock = tool("lock")
    monkeypatch.setenv("PIP_INDEX_URL", "file:///index/")
    monkeypatch.setattr(lock.urllib.request, "urlopen", open_page)
    assert lock.ask_index("own") == {"own-1.2+cpu.tar.gz": digest}
    assert opened == ["file:///index/own/"]


def test_the_bill_of_materials_lists_what_is_installed() -> None:
    """It was checked once against the schema of CycloneDX 1.6 by the package cyclonedx-python-lib."""
    try:
        version("softspin")
    except ImportError:
        pytest.skip("softspin is not installed")
    made = tool("sbom").sbom()
    assert json.loads(json.dumps(made)) == made
    assert (made["bomFormat"], made["specVersion"], made["version"]) == ("CycloneDX", "1.6", 1)
    versions = {one["name"]: one["version"] for one in made["components"]}
    assert {"torch", "numpy", "typer", "click" if "click" in versions else "rich"} <= versions.keys()
    assert versions == {name: version(name) for name in versions}
    assert not {"pytest", "ruff", "matplotlib"} & versions.keys(), "extras are not needed"
    assert "matplotlib" in {one["name"] for one in tool("sbom").sbom(["plot"])["components"]}
    references = {one["bom-ref"] for one in [made["metadata"]["component"], *made["components"]]}
    assert len(references) == len(versions) + 1
    assert {one["ref"] for one in made["dependencies"]} == references
    assert {other for one in made["dependencies"] for other in one["dependsOn"]} == references - {
        made["metadata"]["component"]["bom-ref"]
    }
    assert all(
        one["purl"] == f"pkg:pypi/{one['name']}@{one['version'].replace('+', '%2B')}" for one in made["components"]
    )
