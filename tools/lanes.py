"""Run several programs on one GPU, and pause all others while one of them measures.

    python tools/lanes.py start PLAN.toml STATE      # in the background; it goes on when the terminal is closed
    python tools/lanes.py wait STATE SECONDS [--pack FILE.tar.gz]

A plan has lanes, which run at the same time. The commands of a lane run one after another; a failed one is reported,
and the next one starts. `{alone}` in a command becomes a file by which it asks to be alone on the GPU
(`benchmarks/alone.py`); the other lanes are stopped until it deletes the file or ends. `{state}` becomes the folder
STATE, which is new, for files by which lanes wait for each other.

    mps = true                      # programs share the GPU by NVIDIA's Multi-Process Service, if it is installed
    keep = ["rows.jsonl"]           # files and patterns that --pack collects, besides the output of each lane

    [[lane]]
    name = "train"
    commands = ["softspin grid table1 --seeds 0-2 --workers 8"]

    [[lane]]
    name = "times"
    commands = ["python benchmarks/step_times.py --alone {alone}"]

`wait` ends when all lanes have ended or the time is up, and shows the state of each. STATE contains the output of each
lane, `NAME.log`, and what happened, `lanes.jsonl`. The programs of a lane are known by an environment variable, so that
those that they start are stopped too. `kill $(cat STATE/manager.pid)` ends all lanes: their programs are terminated and
have a minute to save what they have. MPS is quit when the lanes have ended. For Linux.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

LANE = "SOFTSPIN_LANE"
ENDED = "ended"
MPS = "nvidia-cuda-mps-control"
PATIENCE = 60.0
"""Seconds that programs have after SIGTERM."""


class Lane:
    """The commands of a lane, one after another."""

    def __init__(self, name: str, commands: list[str], state: Path, environment: dict[str, str]) -> None:
        self.name, self.commands, self.state = name, list(commands), state
        self.request = state / f"{name}.alone"
        self.environment = environment | {LANE: f"{state}:{name}"}
        self.process: subprocess.Popen[bytes] | None = None

    def poll(self) -> bool:
        """Start the next command if none runs; returns whether there is something left to do."""
        if self.process is not None and (code := self.process.poll()) is not None:
            note(self.state, lane=self.name, command=self.commands.pop(0), code=code)
            self.request.unlink(missing_ok=True)
            self.process = None
        if self.process is None and self.commands:
            command = self.commands[0].replace("{alone}", str(self.request)).replace("{state}", str(self.state))
            with (self.state / f"{self.name}.log").open("ab") as log:
                self.process = subprocess.Popen(
                    command, shell=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment
                )
        return self.process is not None

    def send(self, number: signal.Signals) -> None:
        """Send a signal to all processes of the lane."""
        for process in members(self.environment[LANE]):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)

    def pause(self) -> None:
        """Stop all processes, also those that one of them has just started, and wait until they are."""
        while running := [one for one in members(self.environment[LANE]) if not is_stopped(one)]:
            for process in running:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGSTOP)
            time.sleep(0.01)


def members(lane: str) -> list[int]:
    """Processes with the environment variable of a lane."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{LANE}={lane}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


def is_stopped(process: int) -> bool:
    """Whether a process is stopped, or has ended."""
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return True
    return text.rpartition(")")[2].split()[0] in "TtZX"


def note(state: Path, **values: Any) -> None:
    """Add a line about what happened."""
    with (state / "lanes.jsonl").open("a") as file:
        print(json.dumps({"at": time.strftime("%H:%M:%S"), **values}), file=file)


def manage(plan: dict[str, Any], state: Path) -> None:
    """Run the lanes until all have ended, or this process is terminated."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    environment = dict(os.environ)
    try:
        with mps(environment, state) if plan.get("mps") else contextlib.nullcontext():
            lanes = [Lane(one["name"], one["commands"], state, environment) for one in plan["lane"]]
            try:
                run(lanes, state)
            except SystemExit:
                terminate(lanes)
                note(state, manager="terminated")
                raise
    finally:
        (state / ENDED).touch()


def run(lanes: list[Lane], state: Path) -> None:
    """Run the lanes until all have ended."""
    owner: Lane | None = None
    while True in [lane.poll() for lane in lanes]:
        if owner is not None and not owner.request.exists():
            for lane in lanes:
                lane.send(signal.SIGCONT)
            note(state, lane=owner.name, alone="ended")
            owner = None
        if owner is None and (waiting := [lane for lane in lanes if lane.request.exists()]):
            owner = min(waiting, key=lambda lane: lane.request.stat().st_mtime)
            for lane in lanes:
                if lane is not owner:
                    lane.pause()
            note(state, lane=owner.name, alone="began")
            owner.request.write_text("alone")
        time.sleep(0.05)


def terminate(lanes: list[Lane]) -> None:
    """Terminate the programs of all lanes, also stopped ones, and wait until they have ended."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    deadline = time.monotonic() + PATIENCE
    for number in (signal.SIGTERM, signal.SIGCONT):
        for lane in lanes:
            lane.send(number)
    while time.monotonic() < deadline and any(members(lane.environment[LANE]) for lane in lanes):
        for lane in lanes:
            if lane.process is not None:
                lane.process.poll()  # an ended child remains a process until it is polled
        time.sleep(0.1)


@contextlib.contextmanager
def mps(environment: dict[str, str], state: Path) -> Iterator[None]:
    """Start the Multi-Process Service and quit it at the end. One that runs already, or is not installed, is left."""
    if shutil.which(MPS) is None:
        yield
        return
    for variable in ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"):
        environment.setdefault(variable, str(state / variable.lower()))
        Path(environment[variable]).mkdir(exist_ok=True)
    is_own = subprocess.run([MPS, "-d"], env=environment, check=False).returncode == 0
    try:
        yield
    finally:
        if is_own:
            try:
                subprocess.run([MPS], input=b"quit -t 10\n", env=environment, check=False, timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                note(state, mps="does not quit")


def start(path: Path, state: Path) -> None:
    """Check the plan, and manage it in a process of its own."""
    plan = tomllib.loads(path.read_text())
    names = [lane["name"] for lane in plan["lane"]]
    if len(set(names)) < len(names):
        raise SystemExit(f"{path} has two lanes of one name; each needs its own")
    state.mkdir(parents=True)  # an old one would mix two plans
    shutil.copy(path, state / "plan.toml")
    with (state / "manager.log").open("wb") as log:
        manager = subprocess.Popen(
            [sys.executable, __file__, "manage", str(state)], start_new_session=True, stdin=subprocess.DEVNULL,
            stdout=log, stderr=log,
        )  # fmt: skip
    (state / "manager.pid").write_text(f"{manager.pid}\n")


def wait(state: Path, seconds: float, pack: Path | None) -> None:
    """Wait until all lanes have ended or the time is up, collect files, and show the state."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not (state / ENDED).exists():
        time.sleep(0.2)
    if pack is not None:
        patterns = tomllib.loads((state / "plan.toml").read_text()).get("keep", [])
        found = [file for pattern in patterns for file in sorted(Path().glob(pattern))]
        with tarfile.open(pack, "w:gz") as archive:
            for file in [*found, *sorted(state.glob("*.log")), *sorted(state.glob("*.jsonl"))]:
                archive.add(file, arcname=file if file in found else f"lanes/{file.name}")
    show(state)


def show(state: Path) -> None:
    """What happened, and the last line of each output."""
    with contextlib.suppress(FileNotFoundError):
        print((state / "lanes.jsonl").read_text(), end="")
    for log in sorted(state.glob("*.log")):
        print(f"{log.stem}: {last_line(log.read_text(errors='replace').splitlines())}")
    print("all lanes have ended" if (state / ENDED).exists() else "lanes are running")


def last_line(lines: Iterable[str]) -> str:
    """The last line that is not empty, at most 300 characters."""
    return next((line[:300] for line in reversed([*lines]) if line.strip()), "")


def main(words: list[str] | None = None) -> None:
    """Run a command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("start")
    one.add_argument("plan", type=Path)
    one.add_argument("state", type=Path)
    one = commands.add_parser("wait")
    one.add_argument("state", type=Path)
    one.add_argument("seconds", type=float)
    one.add_argument("--pack", type=Path)
    commands.add_parser("manage").add_argument("state", type=Path)
    options = parser.parse_args(words)
    if options.command == "start":
        start(options.plan, options.state.resolve())
    elif options.command == "wait":
        wait(options.state, options.seconds, options.pack)
    else:
        manage(tomllib.loads((options.state / "plan.toml").read_text()), options.state)


if __name__ == "__main__":
    main()
