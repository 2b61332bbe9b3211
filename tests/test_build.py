"""Built packages: the commit is recorded in wheels and sdists, and the package's data files are in the wheel."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import softspin
from softspin.provenance import _built_from

wheel = pytest.importorskip("hatchling.builders.wheel", reason="hatchling is not installed here")
sdist = pytest.importorskip("hatchling.builders.sdist", reason="hatchling is not installed here")

ROOT = Path(softspin.__file__).parents[2]
BUILT = ("README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "pyproject.toml", "hatch_build.py", ".gitignore")


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", *who, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def make_clone(folder: Path) -> Path:
    """A repository with the files that a build reads, and one commit."""
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__", "_build.json"))
    for name in BUILT:
        shutil.copy(ROOT / name, folder / name)
    git(folder, "init")
    git(folder, "add", ".")
    git(folder, "commit", "-m", "all")
    return folder


def build_wheel(folder: Path, out: Path) -> dict[str, bytes]:
    """The files of the wheel that is built from a folder."""
    (path,) = wheel.WheelBuilder(str(folder)).build(directory=str(out), versions=["standard"])
    with zipfile.ZipFile(path) as file:
        assert len(set(file.namelist())) == len(file.namelist())
        return {name: file.read(name) for name in file.namelist()}


def test_wheel_and_sdist_record_the_commit(tmp_path: Path) -> None:
    clone = make_clone(tmp_path / "clone")
    commit = git(clone, "rev-parse", "--short=12", "HEAD")
    found = build_wheel(clone, tmp_path / "first")
    assert json.loads(found["softspin/_build.json"]) == {"commit": commit, "dirty": False}
    for name in ("experiments/tables/table1.toml", "experiments/figures/stored/fig1.npz", "timing/coefficients.json"):
        assert f"softspin/{name}" in found
    assert {name.split("/")[0] for name in found} == {"softspin", f"softspin-{softspin.__version__}.dist-info"}

    (packed,) = sdist.SdistBuilder(str(clone)).build(directory=str(tmp_path / "sdist"))
    with tarfile.open(packed) as file:
        file.extractall(tmp_path / "unpacked", filter="data")
    (source,) = (tmp_path / "unpacked").iterdir()
    again = build_wheel(source, tmp_path / "second")
    assert json.loads(again["softspin/_build.json"]) == {"commit": commit, "dirty": False}

    # Installed, without git: the package knows the commit.
    for name, content in again.items():
        (tmp_path / "installed" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "installed" / name).write_bytes(content)
    code = "import softspin, softspin.provenance as p; print(softspin.__file__, p.commit())"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path / "installed", capture_output=True, text=True, check=True,
        env={"PATH": "", "PYTHONPATH": str(tmp_path / "installed")},
    )  # fmt: skip
    assert done.stdout.split() == [str(tmp_path / "installed" / "softspin" / "__init__.py"), commit]

    (clone / "src" / "softspin" / "new.py").write_text("")
    assert json.loads(build_wheel(clone, tmp_path / "third")["softspin/_build.json"])["dirty"]
    assert not git(clone, "status", "--porcelain", "--", "src/softspin/_build.json")


def test_without_git_and_record_the_commit_is_unknown(tmp_path: Path) -> None:
    clone = make_clone(tmp_path / "clone")
    shutil.rmtree(clone / ".git")
    assert "softspin/_build.json" not in build_wheel(clone, tmp_path / "out")


@pytest.mark.parametrize(
    ("text", "commit"),
    [
        ('{"commit": "0123456789ab", "dirty": false}', "0123456789ab"),
        ('{"commit": "0123456789ab", "dirty": true}', "0123456789ab+"),
        ('{"commit": "0123456789ab"}', None),
        ("[]", None),
        ("not JSON", None),
    ],
)
def test_the_record_of_a_build(tmp_path: Path, text: str, commit: str | None) -> None:
    (tmp_path / "_build.json").write_text(text)
    assert _built_from(tmp_path / "_build.json") == commit
    assert _built_from(tmp_path / "none.json") is None


def test_one_version_everywhere() -> None:
    version = softspin.__version__
    assert f"\n## {version.removesuffix('.dev0')}\n" in (ROOT / "CHANGELOG.md").read_text()
    if not version.endswith(".dev0"):  # one cites releases
        assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    (ruff,) = [line for line in (ROOT / "constraints.txt").read_text().split() if line.startswith("ruff==")]
    assert f"rev: v{ruff.removeprefix('ruff==')}\n" in (ROOT / ".pre-commit-config.yaml").read_text()
