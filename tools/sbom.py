"""Write the software bill of materials of an installed softspin, as CycloneDX 1.6 JSON.

    python tools/sbom.py [--extra NAME ...] [--out sbom.cdx.json]

It lists softspin and every package that it needs, directly or not, in the versions that are installed here, with their
licenses and what each one needs. The same installation always gives the same file, except for the time in it.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import uuid
from collections.abc import Iterable
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = "softspin"


def requirements(dist: Distribution, extras: Iterable[str]) -> dict[str, set[str]]:
    """Packages that one needs on this system, with the extras that it asks of them."""
    found: dict[str, set[str]] = {}
    for text in dist.requires or ():
        one = Requirement(text)
        if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            found.setdefault(canonicalize_name(one.name), set()).update(one.extras)
    return found


def needed(root: str, extras: Iterable[str] = ()) -> dict[str, tuple[Distribution, list[str]]]:
    """Installed packages that `root` needs, itself included: each with the names of those that it needs."""
    asked = {root: set(extras)}
    found: dict[str, tuple[Distribution, list[str]]] = {}
    queue = [root]
    while queue:
        name = queue.pop()
        try:
            dist = distribution(name)
        except PackageNotFoundError:
            raise SystemExit(f"{name} is needed, but it is not installed; install it first") from None
        wants = requirements(dist, asked[name])
        wants.pop(name, None)  # an extra that names other extras of the same package
        found[name] = dist, sorted(wants)
        for other, more in wants.items():
            if other not in asked or not more <= asked[other]:
                asked[other] = asked.get(other, set()) | more
                queue.append(other)
    return found


def component(name: str, dist: Distribution, kind: str = "library") -> dict[str, Any]:
    """A package: name, version, address in the Python index, license."""
    about = dist.metadata
    license_text = about.get("License-Expression") or about.get("License") or ""
    short = " ".join(license_text.split())
    licenses: list[dict[str, Any]] = []
    if about.get("License-Expression"):
        licenses = [{"expression": short}]
    elif short and len(short) < 100:
        licenses = [{"license": {"name": short}}]
    return {
        "type": kind,
        "bom-ref": reference(name, dist),
        "name": name,
        "version": dist.version,
        "purl": reference(name, dist),
        **({"licenses": licenses} if licenses else {}),
    }


def reference(name: str, dist: Distribution) -> str:
    """Package URL."""
    return f"pkg:pypi/{name}@{dist.version.replace('+', '%2B')}"


def sbom(extras: Iterable[str] = (), when: datetime.datetime | None = None) -> dict[str, Any]:
    """The bill of materials of the installed softspin with these extras."""
    found = needed(ROOT, extras)
    references = {name: reference(name, dist) for name, (dist, _) in found.items()}
    libraries = [component(name, dist) for name, (dist, _) in sorted(found.items()) if name != ROOT]
    depends = [
        {"ref": references[name], "dependsOn": [references[other] for other in wants]}
        for name, (_, wants) in sorted(found.items())
    ]
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(depends))
    when = when or datetime.datetime.fromtimestamp(
        int(os.environ.get("SOURCE_DATE_EPOCH", datetime.datetime.now(datetime.UTC).timestamp())), datetime.UTC
    )
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {
            "timestamp": when.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": component(ROOT, found[ROOT][0], "application"),
        },
        "components": libraries,
        "dependencies": depends,
    }


def main() -> None:
    """Write the file, or print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--extra", action="append", default=[])
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    text = json.dumps(sbom(args.extra), indent=1) + "\n"
    if args.out is None:
        print(text, end="")
    else:
        args.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
