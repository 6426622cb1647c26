"""Whole sessions as recorded: what the harness passes, what other agents do meanwhile, and exactly what is printed.

In `recorded/`, a line `hook … < input` is a call in a process of its own and the lines below it its output; a line
`call …` is another agent, a line `file …` shows a file below .nexus. `$PROJECT`, `$MSG1`, `$HND1`, `$TIME` stand for
what differs from run to run.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.hooks.harness import Harness

RECORDED = sorted(Path(__file__).with_name("recorded").glob("*.session"))
TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")
IDS = re.compile(r"(msg|hnd)_[0-9a-f]{32}")


def steps(text: str) -> list[tuple[str, str]]:
    """Each line of input with the output below it."""
    found: list[tuple[str, str]] = []
    for line in text.splitlines():
        if line.startswith(("hook ", "call ", "file ")):
            found.append((line, ""))
        elif line and not line.startswith("##"):
            found[-1] = (found[-1][0], found[-1][1] + line + "\n")
    return found


class Names:
    """What stands for what in a recording."""

    def __init__(self, project: str) -> None:
        self.known = {"$PROJECT": project}

    def filled(self, text: str) -> str:
        for name, value in self.known.items():
            text = text.replace(name, value)
        return text

    def general(self, text: str) -> str:
        for name, value in self.known.items():
            text = text.replace(value, name)
        return TIME.sub("$TIME", text)

    def learn(self, text: str) -> None:
        for kind in ("msg", "hnd"):
            for value in dict.fromkeys(match[0] for match in IDS.finditer(text) if match[1] == kind):
                if value not in self.known.values():
                    self.known[
                        f"${kind.upper()}{sum(name.startswith(f'${kind.upper()}') for name in self.known) + 1}"
                    ] = value


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.parametrize("recording", RECORDED, ids=lambda path: path.stem)
def test_it_goes_as_recorded(recording: Path, harness: Harness) -> None:
    names = Names(str(harness.project))
    for line, expected in steps(recording.read_text()):
        if line.startswith("call "):
            _, operation, arguments = line.split(" ", 2)
            names.learn(json.dumps(harness.call(operation, json.loads(names.filled(arguments)))))
            continue
        if line.startswith("file "):
            assert names.general((harness.project / ".nexus" / line.split()[1]).read_text()) == expected, line
            continue
        options, _, text = line.partition("<")
        done = harness.hook(*shlex.split(names.filled(options))[1:], text=names.filled(text))
        assert (done.returncode, done.stderr) == (0, "")
        names.learn(done.stdout)
        assert names.general(done.stdout) == expected, line
        harness.until_session()  # so that others know the agent
