"""How commands end: at a signal in their first moments, at a second Ctrl-C, and where nobody reads on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.hub import ROOT, START_SECONDS
from tests.acceptance.processes import environment

# Sends itself signals when a module is imported; in a finalizer, where Python ignores what is raised.
SIGNALLED = """
import os, sys
at, number, finalizer, *words = sys.argv[1:]

class Finalized:
    def __del__(self):
        os.kill(os.getpid(), int(number))

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == at:
            sys.meta_path.remove(self)
            Finalized() if finalizer == "yes" else os.kill(os.getpid(), int(number))

sys.meta_path.insert(0, Finder())
sys.path.insert(0, os.environ["PYTHONPATH"])
sys.argv = ["nexus", *words]
from nexus_site.launch import main
main()
"""


def signalled(home: Path, at: str, number: int, finalizer: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", SIGNALLED, at, str(int(number)), finalizer, *words],
        env=environment(home, TMPDIR=str(home.parent)),
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
    )


@pytest.mark.parametrize(
    ("at", "finalizer", "number"),
    [
        ("django", "no", signal.SIGINT),
        ("nexus_site.serving.daphne", "yes", signal.SIGTERM),
        pytest.param("django", "no", signal.SIGTERM, marks=pytest.mark.long),
        pytest.param("nexus_site.serving.daphne", "yes", signal.SIGINT, marks=pytest.mark.long),
    ],
)
def test_a_hub_ends_at_a_signal_in_its_first_moments(home: Path, at: str, finalizer: str, number: int) -> None:
    done = signalled(home, at, number, finalizer, "serve", "--port", "0")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("at", "finalizer", "number", "code"),
    [
        ("django", "no", signal.SIGTERM, 143),
        pytest.param("nexus_site.demo", "yes", signal.SIGINT, 130, marks=pytest.mark.long),
    ],
)
def test_a_demo_ends_at_a_signal_in_its_first_moments(
    tmp_path: Path, at: str, finalizer: str, number: int, code: int
) -> None:
    done = signalled(tmp_path / "home", at, number, finalizer, "demo", "--rounds", "1")
    assert done.returncode == code, done.stderr
    assert not list(tmp_path.glob("nexus-demo-*"))


TWICE = """
import os, signal, sys
sys.path.insert(0, os.environ["PYTHONPATH"])
from nexus_site import launch

class Stubborn:
    def write(self, text):
        os.kill(os.getpid(), signal.SIGINT)
        return os.write(2, text.encode())
    def flush(self): pass

def interrupted(words):
    sys.stderr = Stubborn()
    os.kill(os.getpid(), signal.SIGINT)

launch._main = interrupted
launch.main()
"""


def test_a_second_interrupt_does_not_disturb_the_end(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", TWICE],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
    )
    assert (done.returncode, done.stderr.strip()) == (130, "[nexus] Interrupted.")


@pytest.mark.parametrize("words", [["--help"], ["settings"]])
def test_a_command_says_nothing_of_a_reader_that_has_seen_enough(home: Path, words: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as closed:
        done = subprocess.run(
            [sys.executable, str(ROOT / "manage.py"), *words],
            env=environment(home),
            stdout=closed,
            stderr=subprocess.PIPE,
            timeout=START_SECONDS,
        )
    assert done.stderr == b""
