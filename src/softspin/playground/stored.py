"""Pages that were written before: read their data, and migrate them to the present version."""

from __future__ import annotations

import json
import re
from typing import Any

from softspin.errors import DataError

VERSION = 2
"""Version of the data of a page. Version 1 had one replica and no version."""
_OF_A_REPLICA = ("headline", "facts", "encoder", "decoder", "smoothing", "check")
_MODEL = re.compile(r'<script type="application/json" id="model">(.*?)</script>', re.DOTALL)


def read_data(page: str) -> dict[str, Any]:
    """Read the data of a page.

    Args:
        page: The page as HTML.

    Returns:
        The data, in the version of the page.

    Raises:
        DataError: This is not a page that softspin wrote.
    """
    found = _MODEL.search(page)
    try:
        data = json.loads(found[1]) if found else None
    except ValueError:
        data = None
    if not isinstance(data, dict):
        raise DataError("no model in this page; expected a page that `softspin playground` wrote")
    return data


def migrated(data: dict[str, Any]) -> dict[str, Any]:
    """Migrate the data of a page to the present version. Numbers of the model are not changed.

    Args:
        data: The data of a page.

    Returns:
        Data of the present version.

    Raises:
        DataError: The version is unknown, or a key is missing.
    """
    version = data.get("version", 1)
    if version == VERSION:
        return data
    if version != 1:
        raise DataError(
            f"this page has version {version}; this softspin reads versions 1 to {VERSION}; update softspin"
        )
    try:
        name = dict(data["facts"])["Replica"]
        replica = {"number": 0, "name": name, **{key: data[key] for key in _OF_A_REPLICA}, "prior": data["rbm"]}
    except KeyError as error:
        raise DataError(f"the data of this page have no {error}; write the page again from its run") from None
    common = {key: value for key, value in data.items() if key not in (*_OF_A_REPLICA, "rbm")}
    return {"version": VERSION, **common, "replicas": [replica]}
