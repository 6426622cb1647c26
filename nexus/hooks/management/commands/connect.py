"""`nexus connect`: Nexus's entry in a client's MCP configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.core.management.base import CommandParser

from nexus.core.apps import mcp_servers
from nexus.core.cli import CommandGroup, NexusCommand
from nexus.core.coding_clients import CLIENTS
from nexus.core.operations.errors import Code, NexusError, invalid
from nexus.hooks import client_commands, client_entries, client_files
from nexus.hooks.client_commands import (
    TOOLSETS,
    add_setup_options,
    carry_out,
    program,
    project,
    remind_of_password,
    settings_flags,
    with_toolsets,
)
from nexus.hooks.client_entries import KEY_VARIABLE


class Command(NexusCommand):
    """Write the entry, or print it if no file is known."""

    group = CommandGroup.CLIENTS
    help = "Write Nexus into a coding client's MCP configuration. Shows the change first, asks, and keeps a backup."
    examples = (
        "examples:\n"
        "  nexus connect --client claude-code                                  starts `nexus runmcp` over stdio\n"
        "  nexus connect --client cursor --url http://127.0.0.1:8420/mcp       the key comes from NEXUS_API_KEY\n"
        "  nexus connect --client codex --url http://127.0.0.1:8420/mcp --key-env BUILDER_KEY --scope user\n"
        "  nexus connect --client claude-code --toolsets all                   with every toolset's tools\n"
        "  nexus connect --client claude-code --as nexus-core                  in the place of that program's server\n"
        "  nexus connect --client json                                         prints it\n"
        "  nexus connect --client cursor --remove\n"
        "\n"
        "exit codes: 0 written, printed, or nothing to change; 1 refused; stderr has the code and what to do\n"
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--client",
            choices=tuple(CLIENTS),
            metavar="CLIENT",
            required=True,
            help=f"the client to configure: {', '.join(CLIENTS)}",
        )
        parser.add_argument("--url", help="the hub's /mcp address; without it the client starts `nexus runmcp`")
        key = parser.add_mutually_exclusive_group()
        key.add_argument(
            "--key-env",
            metavar="VARIABLE",
            help=f"with --url: the environment variable that holds the agent's key; default: {KEY_VARIABLE}",
        )
        key.add_argument(
            "--key", help="write the agent's key (nxs_…) into the file; refused if git would track the file"
        )
        parser.add_argument(
            "--key-in-repository",
            action="store_true",
            help="with --key: write the key even if git would track the file",
        )
        parser.add_argument(
            "--as",
            dest="system",
            choices=sorted(mcp_servers()),
            metavar="SYSTEM",
            help=f"without --url: serve the tools of another system in its place: {', '.join(sorted(mcp_servers()))}",
        )
        parser.add_argument("--remove", action="store_true", help="remove the entry")
        parser.add_argument(
            "--project",
            dest="project_root",
            metavar="DIR",
            help="the project of --scope project; default: the working directory",
        )
        add_setup_options(parser)

    def run(self, **options: Any) -> None:
        client = options["client"]
        known = CLIENTS[client]
        if options["system"] and options["url"]:
            raise invalid("--as is for a local server; leave --url out.", field="system")
        if options["key_env"] and not options["url"]:
            raise invalid("--key-env goes with --url: a local server takes NEXUS_API_KEY as it is.", field="key_env")
        if options["url"] is not None:
            check_url(options["url"])
        variable = options["key_env"]
        if options["url"] and not options["key"] and known.can_name_a_variable:
            variable = variable or KEY_VARIABLE
        server: dict[str, Any] = {
            "url": options["url"] and with_toolsets(options["url"]),
            "key": options["key"],
            "key_variable": variable,
            "command": [
                *program(),
                "runmcp",
                *settings_flags(TOOLSETS),
                *(["--as", options["system"]] if options["system"] else []),
            ],
        }
        if not options["url"] and not options["remove"]:
            remind_of_password(self)
        if known.user_file is None:
            self.stdout.write(client_entries.snippet(client, **server).text, ending="")
            return
        edit = (
            client_files.drop_server(client)
            if options["remove"]
            else client_files.put_server(client, client_entries.server_entry(client, **server))
        )
        file = client_files.find(client, project(options), options["scope"])
        change = client_files.plan(file, known.format, edit)
        if options["key"] and not options["remove"] and not options["key_in_repository"]:
            _keep_out_of_repositories(change.file)
        carry_out(self, change, yes=options["yes"])
        if variable and not options["remove"]:
            self.stdout.write(
                f"Start the client with {variable} set to its agent's key; `nexus agents key` issues one."
            )


def check_url(url: str) -> None:
    """Check the URL of a hub. Raises VALIDATION_ERROR."""
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        sound = False
    if not sound or any(letter.isspace() for letter in url):
        raise invalid(
            f"--url: {url[:200]!r} is not the address of a hub: use http:// or https:// with a host and /mcp, such as "
            "http://127.0.0.1:8420/mcp.",
            field="url",
        )


def _keep_out_of_repositories(file: Path) -> None:
    """Check that a key in `file` would not be committed. Raises CONFIG_ERROR."""
    if client_commands.would_track(file):
        raise NexusError(
            Code.CONFIG_ERROR,
            f"Nothing was written: {file} is part of a git repository, and everybody who has that would have the key. "
            f"Leave --key out (with --url the client takes {KEY_VARIABLE} from its environment), let git "
            "ignore the file, or use --scope user; to write it all the same add --key-in-repository.",
            {"file": str(file)},
        )
