"""What doctor needs of hooks: the check of clients' files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nexus.core.coding_clients import CLIENTS, HOOKED, Format
from nexus.core.contributions import DoctorCheck, Finding
from nexus.core.operations.errors import NexusError
from nexus.hooks import client_entries, client_files, setup_record

ADVICE = "Neither `nexus setup` nor, perhaps, the client can read it. Correct it, then run `nexus setup --check`."


def _client_files(examination: Any) -> Iterator[Finding]:
    """Check that the files of this machine's clients, and those that setup wrote, can be read."""
    formats: dict[Path, Format] = {}
    for name in client_entries.installed_clients():
        formats[client_files.find(name, examination.path, "user")] = CLIENTS[name].format
        if name in HOOKED:
            formats[client_entries.locate(HOOKED[name].user_file, examination.path)] = "json"
    for record in setup_record.paths(examination.path):
        try:
            for path, written in setup_record.read(record).files.items():
                for kind, client in written.parts:
                    if client and kind != "whole":
                        formats[Path(path)] = setup_record.format_of(kind, client)
        except NexusError as error:
            yield Finding(error.message, "Delete it; `nexus setup` writes another, and cannot undo what was before.")
    for file, format in sorted(formats.items()):
        try:
            client_files.parse(file, format, client_files.read(file) or "")
        except NexusError as error:
            yield Finding(error.message, ADVICE)


CHECKS = (DoctorCheck("clients' files", _client_files),)
