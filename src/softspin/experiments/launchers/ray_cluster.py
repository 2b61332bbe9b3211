"""Connection to a Ray cluster, or one that is started here and ends with the grid.

A cluster of this machine listens on loopback only. Its password is in the environment of its processes, so that no
token file is written and other users cannot connect. It runs under a guard process, `python -m
softspin.experiments.launchers.ray_cluster`, which ends it and deletes its files when its own input ends. So nothing is
left, even if the grid is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

from softspin.cores import unbound
from softspin.errors import ConfigError, WorkerError, missing_extra

NO_TELEMETRY = {"RAY_USAGE_STATS_ENABLED": "0"}
PRIORITY = {"RAY_worker_niceness": "0"}
"""By default, Ray lowers the priority of its workers: training would wait for any other program."""
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Makes Ray use 127.0.0.1 instead of the address of the machine, as on other systems."""
OBJECT_STORE_BYTES = 200 * 2**20
"""Size of the object store of a cluster of one machine, where no files are sent."""
CONNECT_SECONDS = 10.0
MAX_SOCKET_FOLDER = 40
"""Longest folder for the sockets of Ray, whose paths may have 107 characters."""
MAX_REASON = 200


def import_ray() -> Any:
    """Import Ray, without its telemetry unless the user chose it.

    Returns:
        The module.

    Raises:
        MissingExtraError: Ray is not installed.
    """
    for name, value in NO_TELEMETRY.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise missing_extra("the launcher ray needs the package ray", "ray") from error
    return ray


class RayCluster:
    """A connection to a cluster.

    A connection that exists already, as in a program that uses Ray itself, is used and kept.

    Args:
        address: Its address, "auto" for one that was started on this machine, or None for `$RAY_ADDRESS`. Without any,
            a cluster is started on this machine.
        cpus: Number of cores of a cluster that is started here.
        use_gpus: Whether a cluster that is started here has the GPUs of this machine.

    Raises:
        MissingExtraError: Ray is not installed.
        ConfigError: The address is invalid.
        WorkerError: There is no cluster, or it has another version.
    """

    def __init__(self, address: str | None, *, cpus: int, use_gpus: bool) -> None:
        self.ray = import_ray()
        self._held = contextlib.ExitStack()
        self.started_here = False
        address = address or os.environ.get("RAY_ADDRESS") or "local"
        if self.ray.is_initialized():
            return
        try:
            if address == "local":
                self.started_here = True
                address = self._start(cpus, use_gpus)
                # Ray reads the variable of `LOOPBACK` only when it is imported.
                with _patched(self.ray._private.ray_constants, "ENABLE_RAY_CLUSTER", False):
                    self._connect(address)
            else:
                _check_address(address)
                self._connect(address)
        except BaseException:
            self.close()
            raise

    def _start(self, cpus: int, use_gpus: bool) -> str:
        """Start a cluster under a guard; returns its address."""
        variables = {**NO_TELEMETRY, **LOOPBACK, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        environment = (
            PRIORITY | {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"} | variables
        )
        stderr = self._held.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - closed by the stack
        with unbound():
            guard = subprocess.Popen(
                [sys.executable, "-m", "softspin.experiments.launchers.ray_cluster", str(cpus), str(int(use_gpus))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=environment | {"OMP_PROC_BIND": "false"},  # all processes of Ray are its children
                text=True,
                start_new_session=True,  # Ctrl-C in a terminal reaches the driver only
            )
        self._held.enter_context(guard)  # closes its input and waits for its end
        self._held.enter_context(_password(self.ray, variables))
        assert guard.stdout is not None
        for line in guard.stdout:
            with contextlib.suppress(ValueError):  # something that Ray printed
                return str(json.loads(line)["address"])
        stderr.seek(0)
        raise WorkerError(f"Ray did not start on this machine: {_last_line(stderr.read().decode(errors='replace'))}")

    def _connect(self, address: str) -> None:
        try:
            with _signals_kept():
                self.ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        except (ConnectionError, RuntimeError, ValueError, self.ray.exceptions.RayError) as error:
            raise WorkerError(f"no connection to the Ray cluster at {address}: {_reason(error)}") from None
        self._held.callback(self._disconnect)
        # A thread of Ray prints to stdout when a node dies. That is an event of the grid here.
        self._held.enter_context(_patched(self.ray._private.worker, "print_to_stdstream", lambda *_, **__: None))

    def _disconnect(self) -> None:
        with _signals_kept():
            self.ray.shutdown()

    def resources(self) -> list[dict[str, float]]:
        """Resources of each living node."""
        return [node["Resources"] for node in self.ray.nodes() if node["Alive"]]

    def close(self) -> None:
        """Disconnect, and end the cluster if it was started here."""
        self._held.close()


def _check_address(address: str) -> None:
    """Raise unless something answers at an address; Ray itself would wait for a minute."""
    if address == "auto":
        return
    if address.startswith("ray://"):
        raise ConfigError(f"address {address} is one of Ray Client; run softspin on a node and give host:port or auto")
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigError(
            f"address '{address}' is not of a Ray cluster; give host:port, such as 10.0.0.1:6379, or auto"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise WorkerError(
            f"there is no Ray cluster at {address} ({reason}); start one with: ray start --head --port={port}"
        ) from None


def _reason(error: BaseException) -> str:
    """Why a connection failed, in one line: Ray puts the reason into the cause, before a long explanation."""
    texts = [str(error), str(error.__cause__ or "")]
    if any("Version mismatch" in text or "version mismatch" in text for text in texts):
        text = " ".join(next(text for text in texts if "ersion mismatch" in text).split())
        return f"{text[:MAX_REASON]}; install the versions of the cluster here"
    if any("uthentica" in text for text in texts):
        return "the authentication failed; set RAY_AUTH_MODE and RAY_AUTH_TOKEN as on the cluster"
    return _last_line(texts[0])


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:MAX_REASON] if lines else "no message"


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    """Keep the handler of SIGTERM, which Ray replaces."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)


@contextlib.contextmanager
def _patched(module: Any, name: str, value: Any) -> Iterator[None]:
    """Replace something in a module of Ray for a while."""
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


@contextlib.contextmanager
def _password(ray: Any, variables: dict[str, str]) -> Iterator[None]:
    """Set the variables of the own cluster for as long as it lives. Ray reads them again only on request."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        _read_password(ray)
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        _read_password(ray)


def _read_password(ray: Any) -> None:
    ray._raylet.Config.initialize("")
    ray._raylet.AuthenticationTokenLoader.instance().reset_cache()


def guard(cpus: int, use_gpus: bool) -> None:
    """Run a cluster until the input ends; prints its address once it is up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ray = import_ray()
    short = len(tempfile.gettempdir()) <= MAX_SOCKET_FOLDER
    with tempfile.TemporaryDirectory(
        prefix="softspin-ray-", dir=None if short else "/tmp", ignore_cleanup_errors=True
    ) as folder:
        context = ray.init(
            num_cpus=cpus,
            num_gpus=None if use_gpus else 0,
            object_store_memory=OBJECT_STORE_BYTES,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
            _temp_dir=folder,
            _node_ip_address="127.0.0.1",
        )
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # only the end of the grid ends the cluster
        try:
            print(json.dumps({"address": context.address_info["address"]}), flush=True)
            sys.stdin.read()
        finally:
            ray.shutdown()


if __name__ == "__main__":
    guard(int(sys.argv[1]), bool(int(sys.argv[2])))
