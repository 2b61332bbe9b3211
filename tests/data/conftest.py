"""Fixtures: real data sets if available, small random ones everywhere, and a local server."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from data.stand_ins import Server, SmallMnist, as_amat

from softspin.data import Dataset, load

REAL_DATA = os.environ.get("SOFTSPIN_DATA", "")  # before any test changes the environment


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test has its own cache, no $SOFTSPIN_DATA, and no proxy for the local server."""
    monkeypatch.delenv("SOFTSPIN_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("no_proxy", "*")
    return tmp_path / "xdg" / "softspin"


@pytest.fixture(scope="session")
def real_folder() -> Path:
    if not REAL_DATA:
        pytest.skip("the real data sets are not available: $SOFTSPIN_DATA is not set")
    return Path(REAL_DATA).resolve()


@pytest.fixture(scope="session")
def real_mnist(real_folder: Path) -> Dataset:
    return load("mnist", folder=real_folder)


@pytest.fixture(scope="session")
def real_omniglot(real_folder: Path) -> Dataset:
    return load("omniglot", folder=real_folder)


@pytest.fixture
def server() -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.asked.append(self.path)
            if self.path not in state.content:
                self.send_error(404)
                return
            body = state.content[self.path]
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: len(body) // 2] if self.path in state.cut else body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state = Server(f"http://127.0.0.1:{httpd.server_address[1]}")
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield state
    httpd.shutdown()
    thread.join()
    httpd.server_close()


@pytest.fixture
def small_mnist() -> SmallMnist:
    random = np.random.default_rng(5)
    sizes = {"train": 30, "valid": 10, "test": 20}
    tables = {part: random.integers(0, 2, (size, 784)).astype(np.uint8) for part, size in sizes.items()}
    texts = {f"binarized_mnist_{part}.amat": as_amat(table) for part, table in tables.items()}
    packed = b"".join(np.packbits(table, axis=1).tobytes() for table in tables.values())
    return SmallMnist(tables, texts, hashlib.sha256(packed).hexdigest())
