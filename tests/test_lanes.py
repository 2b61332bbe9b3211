"""Several programs on one GPU: lanes, and measurements during which all others are stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import softspin

ROOT = Path(softspin.__file__).parents[2]
LANES = ROOT / "tools" / "lanes.py"
TICK = """
import subprocess, sys, time
if len(sys.argv) < 3:
    subprocess.run([sys.executable, __file__, sys.argv[1], "child"])
else:
    while True:
        with open(sys.argv[1], "a") as file:
            print(time.monotonic(), file=file)
        time.sleep(0.01)
"""
MEASURE = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from alone import alone
while not Path(sys.argv[1]).exists():
    time.sleep(0.01)
for _ in range(2):
    with alone(Path(sys.argv[2])):
        start = time.monotonic()
        time.sleep(0.5)
        print(start, time.monotonic(), flush=True)
    time.sleep(0.3)
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def lanes(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(LANES), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str, str], str]:
    """Writes a program; returns the words that run it."""

    def write(name: str, text: str) -> str:
        (tmp_path / name).write_text(text)
        return f"{sys.executable} {tmp_path / name}"

    return write


def test_others_are_stopped_while_one_measures(tmp_path: Path, script: Callable[[str, str], str]) -> None:
    """The program that is stopped is a grandchild of its lane; it writes the time every 10 ms."""
    ticks, state, plan = tmp_path / "ticks", tmp_path / "state", tmp_path / "plan.toml"
    tick, measure = script("tick.py", TICK), script("measure.py", MEASURE)
    commands = [f"timeout 60 {tick} {ticks}"]
    last = f"pkill -f '{tick} {ticks}'"  # ends the other lane
    plan.write_text(f"""
        keep = ["{ticks.name}"]
        [[lane]]
        name = "ticks"
        commands = {json.dumps(commands)}
        [[lane]]
        name = "times"
        commands = ["exit 3", "{measure} {ticks} {{alone}} {ROOT / "benchmarks"}", "{last}"]
    """)
    assert lanes("start", plan, state).returncode == 0
    found = subprocess.run(
        [sys.executable, str(LANES), "wait", str(state), "60", "--pack", str(tmp_path / "all.tar.gz")],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    assert found.stdout.splitlines()[-1] == "all lanes have ended", found.stdout
    times = [float(line) for line in ticks.read_text().splitlines()]
    spans = [[float(word) for word in line.split()] for line in (state / "times.log").read_text().splitlines()]
    assert len(spans) == 2
    for start, end in spans:
        assert not [one for one in times if start < one < end]
    between = [one for one in times if spans[0][1] < one < spans[1][0]]
    assert between, "the other lane did not go on"
    notes = [json.loads(line) for line in (state / "lanes.jsonl").read_text().splitlines()]
    assert [note["alone"] for note in notes if "alone" in note] == ["began", "ended", "began", "ended"]
    assert next(note for note in notes if "code" in note)["code"] == 3  # and the lane went on
    with tarfile.open(tmp_path / "all.tar.gz") as archive:
        assert {"ticks", "lanes/times.log", "lanes/lanes.jsonl"} <= set(archive.getnames())


def test_a_program_that_ends_without_a_word_does_not_keep_others_stopped(
    tmp_path: Path, script: Callable[[str, str], str]
) -> None:
    state, plan = tmp_path / "state", tmp_path / "plan.toml"
    killed = script("killed.py", "import os, sys, time; open(sys.argv[1], 'w').close(); time.sleep(0.5); os._exit(9)")
    plan.write_text(f"""
        [[lane]]
        name = "other"
        commands = ["sleep 1", "echo went on"]
        [[lane]]
        name = "killed"
        commands = ["{killed} {{alone}}"]
    """)
    assert lanes("start", plan, state).returncode == 0
    started = time.monotonic()
    assert lanes("wait", state, 60).stdout.splitlines()[-1] == "all lanes have ended"
    assert time.monotonic() - started < 60
    assert (state / "other.log").read_text() == "went on\n"


MPS = """#!/bin/sh
echo "mps $*" >> {log}
[ "$1" = -d ] && exit {code}
cat >> {log}
echo "$CUDA_MPS_PIPE_DIRECTORY" >> {log}
"""


@pytest.fixture
def fake_mps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Path]:
    """Puts a program in place of NVIDIA's whose start has an exit code; returns the file with what it was told."""

    def put(code: int) -> Path:
        program, log = tmp_path / "bin" / "nvidia-cuda-mps-control", tmp_path / "mps.log"
        program.parent.mkdir()
        program.write_text(MPS.format(log=log, code=code))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
        monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
        return log

    return put


@pytest.mark.parametrize("code", [0, 1])
def test_mps_is_quit_when_all_lanes_have_ended(tmp_path: Path, fake_mps: Callable[[int], Path], code: int) -> None:
    """A service that another program has started is not quit: the start fails then."""
    state, plan, log = tmp_path / "state", tmp_path / "plan.toml", fake_mps(code)
    plan.write_text(f"""
        mps = true
        [[lane]]
        name = "one"
        commands = ["until test -e {{state}}/ended-two; do sleep 0.05; done", "echo one >> {log}"]
        [[lane]]
        name = "two"
        commands = ["echo $CUDA_MPS_PIPE_DIRECTORY >> {log}", "touch {{state}}/ended-two"]
    """)
    assert lanes("start", plan, state).returncode == 0
    assert lanes("wait", state, 60).stdout.splitlines()[-1] == "all lanes have ended"
    pipe = str(state / "cuda_mps_pipe_directory")
    quitting = ["mps ", "quit -t 10", pipe] if code == 0 else []
    assert log.read_text().splitlines() == ["mps -d", pipe, "one", *quitting]


def test_a_terminated_manager_ends_its_lanes_and_mps(
    tmp_path: Path, script: Callable[[str, str], str], fake_mps: Callable[[int], Path]
) -> None:
    """One lane is stopped, because the other measures; the programs of both receive the signal."""
    state, plan, log = tmp_path / "state", tmp_path / "plan.toml", fake_mps(0)
    stopped = script("stopped.py", "import signal, sys, time\nsignal.signal(15, lambda *_: sys.exit(print('saved')))\n"
                     "open(sys.argv[1], 'w').close()\ntime.sleep(120)")  # fmt: skip
    plan.write_text(f"""
        mps = true
        [[lane]]
        name = "stopped"
        commands = ["{stopped} {{state}}/ready", "echo not reached >> {log}"]
        [[lane]]
        name = "measures"
        commands = ["until test -e {{state}}/ready; do sleep 0.05; done; touch {{alone}}; sleep 120"]
    """)
    assert lanes("start", plan, state).returncode == 0
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (state / "lanes.jsonl").exists():  # the first note: alone began
        time.sleep(0.05)
    started = time.monotonic()
    os.kill(int((state / "manager.pid").read_text()), signal.SIGTERM)
    assert lanes("wait", state, 60).stdout.splitlines()[-1] == "all lanes have ended"
    assert time.monotonic() - started < 60
    assert (state / "stopped.log").read_text() == "saved\n"
    assert log.read_text().splitlines() == ["mps -d", "mps ", "quit -t 10", str(state / "cuda_mps_pipe_directory")]
    notes = [json.loads(line) for line in (state / "lanes.jsonl").read_text().splitlines()]
    assert notes[-1]["manager"] == "terminated"


def test_mistakes_in_a_plan(tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text('[[lane]]\nname = "a"\ncommands = []\n[[lane]]\nname = "a"\ncommands = []\n')
    found = lanes("start", plan, tmp_path / "state")
    assert found.returncode == 1
    assert found.stderr.strip() == f"{plan} has two lanes of one name; each needs its own"
