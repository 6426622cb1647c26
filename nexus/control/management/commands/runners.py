"""`nexus runners`: list, test and sign in to the runners of the pool's agents."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from django.core.management.base import CommandParser

from nexus.control.runners import sandbox
from nexus.control.runners.base import RunnerFailed
from nexus.control.runners_file import Acp, presets, problem, runners
from nexus.core.cli import EXIT_CODES
from nexus.core.operations.errors import Code, NexusError, invalid
from nexus.core.verbs import Option, Verb, VerbsCommand, name_argument, time


class Command(VerbsCommand):
    toolset = "control"
    help = "List the runners of runners.toml and the presets, try one, or sign in to its agent."
    examples = f"""examples:
  nexus runners
  nexus runners presets
  nexus runners check claude
  nexus runners login codex
  nexus runners outages

{EXIT_CODES}"""

    def verbs(self) -> Sequence[Verb]:
        runner = name_argument("runner", "A name of runners.toml.")
        return (
            Verb("list", "List the runners that runners.toml names.", self.list, examples=["nexus runners"]),
            Verb("presets", "List the agents that `preset` in runners.toml can name, with the versions tried.",
                 self.presets, examples=["nexus runners presets"]),
            Verb("check", "Start a runner's agent, open a session and take one turn; say what is missing.",
                 self.check_one, runner, ["nexus runners check claude"]),
            Verb("login", "Sign in to a runner's agent, in your own home: its sign_in files are copied from there.",
                 self.login, _add_login, ["nexus runners login codex", "nexus runners login codex --method chat-gpt"]),
            Verb(
                "outages",
                operation="pool_list_outages",
                rows="outages",
                columns={
                    "runner": "runner",
                    "fault": "fault",
                    "since": time("since"),
                    "confirmed": "confirmed",
                    "tried again": time("until"),
                    "waiting": "waiting",
                    "fallback": "fallback",
                    "why": "why",
                },
                examples=["nexus runners outages"],
            ),
            Verb(
                "reset",
                operation="pool_reset_outage",
                words=[Option("runner", help="A name of `nexus runners outages`.")],
                each=True,
                examples=["nexus runners reset claude"],
            ),
        )  # fmt: skip

    def list(self, options: Mapping[str, Any]) -> int:
        """Print the runners, one a row. Raises CONFIG_ERROR for an invalid file."""
        if wrong := problem():
            raise NexusError(Code.CONFIG_ERROR, wrong)
        known = runners()
        rows = [
            {
                "runner": name,
                "kind": runner.kind,
                "default": name == known.default,
                "sandbox": sandbox.describe_limits(runner),
            }
            for name, runner in known.by_name.items()
        ]
        return self._rows(options, "runners", rows)

    def presets(self, options: Mapping[str, Any]) -> int:
        """Print the presets, one a row."""
        rows = [
            {
                "preset": name,
                "package": preset["package"],
                "tried": ", ".join(preset["tried"]),
                "command": " ".join(preset["command"]),
            }
            for name, preset in presets().items()
        ]
        return self._rows(options, "presets", rows)

    def check_one(self, options: Mapping[str, Any]) -> int:
        """Test a runner with a handshake and one turn."""
        from nexus.control.runners import acp_check  # needs the extra `acp`

        return self._tried(options, acp_check.check)

    def login(self, options: Mapping[str, Any]) -> int:
        """Sign in to a runner in the operator's own home."""
        from nexus.control.runners import acp_check

        return self._tried(options, partial(acp_check.login, method=options["method"]))

    def _tried(self, options: Mapping[str, Any], act: Callable[..., Coroutine[Any, Any, None]]) -> int:
        """Run `act` with the runner and print its steps as they come."""
        runner, steps, error = _speaking(options["runner"]), list[str](), None

        def say(step: str) -> None:
            steps.append(step)
            if not options["json"]:
                self.stdout.write(step)
                self.stdout.flush()

        try:
            asyncio.run(act(runner, say=say))
        except (RunnerFailed, NexusError) as failed:
            error = str(failed)
            self.stderr.write(error)
        if options["json"]:
            self.print_json({"runner": runner.name, "steps": steps, "error": error})
        return 0 if error is None else 1

    def _rows(self, options: Mapping[str, Any], name: str, rows: Sequence[Mapping[str, Any]]) -> int:
        if options["json"]:
            self.print_json({name: list(rows)})
        else:
            self.print_table([*rows[0]], [tuple(row.values()) for row in rows])
        return 0


def _add_login(parser: CommandParser) -> None:
    parser.add_argument("runner", metavar="RUNNER", help="A name of runners.toml.")
    parser.add_argument(
        "--method", metavar="METHOD", help="A way to sign in that the agent offers. [the runner's, or the first]"
    )


def _speaking(name: str) -> Acp:
    """Return the runner of this name. Raises VALIDATION_ERROR for one whose agent is no program."""
    runner = runners().named(name)
    if not isinstance(runner, Acp):
        why = f"{name} is of kind {runner.kind}; only agents of the kind acp are tried like this."
        raise invalid(why, field="runner")
    return runner
