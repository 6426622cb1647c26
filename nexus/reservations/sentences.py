"""The sentences for events of reservations."""

from __future__ import annotations

from nexus.core.contributions import Sentence

SENTENCES = {
    "file.reserved": Sentence(
        "{actor} reserved {patterns}[ for {handoff}][: {reason}]", "{count} reservations of files"
    ),
    "file.extended": Sentence("{actor} holds {patterns} longer", "{count} reservations held longer"),
    "file.released": Sentence("{patterns} of {holder} is free[: {why}]", "{count} reservations given up"),
    "file.expired": Sentence("The lease of {holder} on {patterns} ran out", "{count} leases of files ran out"),
    "file.asked": Sentence("{actor} asked {holder} for {patterns}", "{count} times asked for files"),
    "file.overridden": Sentence("{actor} made a {verb} over what {holder} holds: {reason}", "{count} overrides"),
}
