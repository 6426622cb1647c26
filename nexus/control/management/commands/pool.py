"""`nexus pool`: the name under which people look for `nexus rpc`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nexus.control.management.commands import rpc
from nexus.core.verbs import Verb


class Command(rpc.Command):
    help = "The same command as `nexus rpc`."
    examples = rpc.Command.examples.replace("nexus rpc", "nexus pool")

    def verbs(self) -> Sequence[Verb]:
        return [
            replace(verb, examples=[each.replace("nexus rpc", "nexus pool") for each in verb.examples])
            for verb in super().verbs()
        ]
