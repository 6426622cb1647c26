"""`nexus completion`: the script with which a shell completes `nexus` command lines."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from nexus.core.cli import EXIT_CODES, Group, NexusCommand


class Command(NexusCommand):
    group = Group.HUB
    help = "Print the script with which a shell completes `nexus` command lines."
    examples = f"""examples:
  eval "$(nexus completion bash)"                                    in ~/.bashrc
  eval "$(nexus completion zsh)"                                     in ~/.zshrc, after compinit
  nexus completion fish > ~/.config/fish/completions/nexus.fish

{EXIT_CODES}"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="bash, zsh or fish")

    def run(self, **options: Any) -> None:
        from argcomplete.shell_integration import shellcode

        self.stdout.write(shellcode(["nexus"], shell=options["shell"]))
