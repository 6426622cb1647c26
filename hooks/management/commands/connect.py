"""`nexus connect`: Nexus's entry in a client's MCP configuration."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from core.cli import Group, NexusCommand
from core.operations.errors import invalid
from hooks import clients, configuration
from hooks.setup import add_setup_options, carry_out, program, project, settings_flags


class Command(NexusCommand):
    """Writes the entry, or prints it where no file is known."""

    group = Group.CLIENTS
    help = "Write Nexus into a coding client's MCP configuration. Shows the change first, asks, and keeps a backup."
    examples = (
        "examples:\n"
        "  nexus connect --client claude-code                                  starts `nexus runmcp` over stdio\n"
        "  nexus connect --client cursor --url http://127.0.0.1:8420/mcp --key nxs_…\n"
        "  nexus connect --client codex --url http://127.0.0.1:8420/mcp --key-env NEXUS_API_KEY --scope user\n"
        "  nexus connect --client json                                         prints it\n"
        "  nexus connect --client cursor --remove\n"
        "\n"
        "exit codes: 0 written, printed, or nothing to change; 1 refused; stderr has the code and what to do\n"
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--client", choices=tuple(clients.CLIENTS), required=True, help="the client to configure")
        parser.add_argument("--url", help="the hub's /mcp address; without it the client starts `nexus runmcp`")
        parser.add_argument("--key", help="the agent's API key (nxs_…); a literal key belongs in no repository")
        parser.add_argument("--key-env", help="an environment variable that holds the key, with --url")
        parser.add_argument("--remove", action="store_true", help="take the entry out again")
        parser.add_argument("--project-root", help="the project of --scope project; default: the working directory")
        add_setup_options(parser)

    def run(self, **options: Any) -> None:
        client = options["client"]
        known = clients.CLIENTS[client]
        if options["key_env"] and not options["url"]:
            raise invalid("--key-env goes with --url: a local server takes NEXUS_API_KEY as it is.", field="key_env")
        server: dict[str, Any] = {
            "url": options["url"],
            "key": options["key"],
            "key_variable": options["key_env"],
            "command": [*program(), "runmcp", *settings_flags()],
        }
        # A client that keeps only one file has that one, whatever the scope.
        in_project = options["scope"] == "project" and known.project_file
        path = known.project_file if in_project else known.user_file
        if path is None:
            self.stdout.write(clients.snippet(client, **server).text, ending="")
            return
        edit = (
            configuration.drop_server(client)
            if options["remove"]
            else configuration.put_server(client, clients.server_entry(client, **server))
        )
        carry_out(
            self, configuration.plan(clients.locate(path, project(options)), known.format, edit), yes=options["yes"]
        )
