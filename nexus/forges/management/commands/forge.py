"""`nexus forge`: repositories on GitHub and GitLab whose issues agents work on, and git remotes for their work."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from django.core.management.base import CommandParser

from nexus.core.cli import CommandGroup
from nexus.core.operations.errors import Code, NexusError
from nexus.core.processes import CHUNK, NEUTRAL, environment, run
from nexus.core.verbs import Verb, VerbsCommand, time

VARIABLES = {"github": ("GH_TOKEN", "GITHUB_TOKEN"), "gitlab": ("GITLAB_TOKEN",)}
GH_SECONDS = 10


class Command(VerbsCommand):
    group = CommandGroup.CLIENTS
    help = "Connect GitHub and GitLab, whose issues become handoffs, and git remotes for finished work."

    def verbs(self) -> Sequence[Verb]:
        return (
            Verb(
                "list",
                "List the connected repositories, and how the last look at each went.",
                operation="forge_list",
                rows="forges",
                columns={
                    "forge": "forge_id",
                    "repository": "repository",
                    "kind": "kind",
                    "label": "label",
                    "looked": time("polled_at"),
                    "last error": "last_error",
                },
                examples=["nexus forge", "nexus forge list --json"],
            ),
            Verb(
                "connect",
                "Connect a repository or a git remote to a project, or give a repository a new token or label. The "
                "answer holds the secret of its webhook.",
                self.connect,
                _token_arguments,
                operation="forge_connect",
                words=["kind", "repository"],
                options=["project_root", "url", "label", "assignee", "base"],
                examples=[
                    "nexus forge connect github acme/shop --project . --label nexus",
                    "nexus forge connect gitlab acme/shop --url https://gitlab.acme.example --token-stdin < token",
                    "nexus forge connect git git@git.acme.example:shop.git --project . --base main",
                ],
            ),
            Verb(
                "take",
                operation="forge_take",
                words=["forge_id", "number"],
                examples=["nexus forge take frg_… 12"],
            ),
            Verb(
                "publish",
                operation="forge_publish",
                words=["handoff_id"],
                options=["branch"],
                examples=["nexus forge publish hnd_…", "nexus forge publish hnd_… --branch feature"],
            ),
            Verb(
                "disconnect",
                operation="forge_disconnect",
                words=["forge_id"],
                asks="Forget {forge_id} and its token?",
                examples=["nexus forge disconnect frg_… --yes"],
            ),
        )

    def connect(self, options: Mapping[str, Any]) -> int:
        """Connect a repository with the token that is found."""
        kind = options["kind"]
        if kind == "git":
            return self.show(options, self.answer(options))
        token = sys.stdin.read().strip() if options["token_stdin"] else _token(kind, options["url"])
        return self.show(options, self.answer(options, token=token))


def _token_arguments(parser: CommandParser) -> None:
    parser.add_argument(
        "--token-stdin",
        action="store_true",
        help="Read the token from stdin. Else it is taken from GH_TOKEN, GITHUB_TOKEN or GITLAB_TOKEN, then from "
        "`gh auth token`, or asked for.",
    )


def _token(kind: str, url: str | None) -> str:
    """Return the token of the environment, of `gh` for github.com, or the one that a person types."""
    for name in VARIABLES.get(kind, ()):
        if token := os.environ.get(name, "").strip():
            return token
    if kind == "github" and url is None and (token := _of_gh()):
        return token
    if not sys.stdin.isatty():
        names = " or ".join(VARIABLES.get(kind, ()))
        raise NexusError(Code.CONFIG_ERROR, f"There is no token. Set {names}, or pass --token-stdin.")
    return getpass.getpass("Token: ").strip()


def _of_gh() -> str:
    env = environment("HOME", "XDG_CONFIG_HOME", "GH_CONFIG_DIR", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS")
    try:
        done = run(["gh", "auth", "token"], cwd=NEUTRAL, env=env, seconds=GH_SECONDS, largest=CHUNK)
    except OSError:
        return ""
    return "" if done.code else done.output.decode(errors="replace").strip()
