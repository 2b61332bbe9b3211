"""Write `requirements.txt`: the versions of `constraints.txt` with the SHA-256 of every file that may be installed.

    python tools/lock.py

It asks the index that pip uses ($PIP_INDEX_URL, or pip's default) and lists the wheels for CPython 3.11 to 3.13 on
Linux (x86-64, ARM). `make` installs from it with `--require-hashes`, so that a changed file is an error. torch and
triton are left out: which build is right depends on the machine, such as the CPU build from torch's own index. pip
installs them after all others, with the versions of `constraints.txt`.
"""

from __future__ import annotations

import contextlib
import os
import re
import urllib.parse
import urllib.request
from collections.abc import Iterable, Mapping
from pathlib import Path

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

ROOT = Path(__file__).parents[1]
PINNED, LOCKED = ROOT / "constraints.txt", ROOT / "requirements.txt"
OF_THE_MACHINE = ("torch", "triton")
PYTHONS = ((3, 11), (3, 12), (3, 13))
PLATFORMS = ("x86_64", "aarch64")
HEADER = "# Written by tools/lock.py from constraints.txt; for Linux. torch and triton depend on the machine.\n"


def pinned() -> dict[str, str]:
    """Versions by normalized name."""
    lines = (line.partition("==") for line in PINNED.read_text(encoding="utf-8").split())
    return {canonicalize_name(name): version for name, _, version in lines}


def supported(python: tuple[int, int], machine: str) -> set[Tag]:
    """Tags of wheels for a version of Python on Linux."""
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in range(39, 4, -1)]
    platforms += [f"manylinux{year}_{machine}" for year in ("2014", "2010", "1")] + [f"linux_{machine}"]
    name = f"cp{python[0]}{python[1]}"
    return {*cpython_tags(python, platforms=platforms), *compatible_tags(python, name, platforms)}


def hashes(name: str, version: str, files: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """SHA-256 of the wheels of a version that fit, and the versions of Python without one on x86-64."""
    wheels = {}
    for file, digest in files.items():
        with contextlib.suppress(InvalidWheelFilename):  # other kinds of files
            _, found, _, tags = parse_wheel_filename(file)
            if str(found) == version:
                wheels[digest] = tags
    fitting = {
        (python, machine): [digest for digest, tags in wheels.items() if tags & supported(python, machine)]
        for python in PYTHONS
        for machine in PLATFORMS
    }
    without = [f"{major}.{minor}" for major, minor in PYTHONS if not fitting[(major, minor), PLATFORMS[0]]]
    if len(without) == len(PYTHONS):
        raise SystemExit(f"{name} {version} has no wheel for Linux; choose another version in {PINNED.name}")
    return sorted({digest for some in fitting.values() for digest in some}), without


def ask_index(name: str) -> dict[str, str]:
    """SHA-256 of all files of a package by name, from the links of its page in the index (PEP 503)."""
    from pip._internal.models.index import PyPI

    index = os.environ.get("PIP_INDEX_URL") or PyPI.simple_url
    with urllib.request.urlopen(f"{index.rstrip('/')}/{name}/", timeout=60) as answer:
        found = re.findall(r'href="([^"#]+)#sha256=([0-9a-f]{64})"', answer.read().decode())
    return {urllib.parse.unquote(link.rpartition("/")[2]): digest for link, digest in found}


def entry(name: str, version: str, digests: Iterable[str], without: Iterable[str]) -> str:
    """The lines of one package."""
    marker = " and ".join(f'python_version != "{one}"' for one in without)
    first = f"{name}=={version}" + (f" ; {marker}" if marker else "")
    return " \\\n".join([first, *(f"    --hash=sha256:{one}" for one in digests)]) + "\n"


def main() -> None:
    """Write the file."""
    parts = [HEADER]
    for name, version in sorted(pinned().items()):
        if name not in OF_THE_MACHINE:
            parts.append(entry(name, version, *hashes(name, version, ask_index(name))))
    LOCKED.write_text("".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main()
