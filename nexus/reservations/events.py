"""The events of reservations, and the sentences that pages show for them."""

from __future__ import annotations

from nexus.core.contributions import Sentence

SENTENCES = {
    "file.reserved": Sentence(
        "{actor} reserved {patterns}[ for {handoff}][: {reason}]", "{count} reservations of files"
    ),
    "file.extended": Sentence("{actor} extended the reservation of {patterns}", "{count} reservations extended"),
    "file.released": Sentence("{patterns} of {holder} is free[: {why}]", "{count} reservations released"),
    "file.expired": Sentence("The lease of {holder} on {patterns} expired", "{count} leases of files expired"),
    "file.asked": Sentence("{actor} asked {holder} for {patterns}", "{count} requests for files"),
    "file.refused": Sentence(
        "The guard refused a {verb} of {actor}: {holder} holds {patterns}", "{count} commits or pushes refused"
    ),
    "file.passed": Sentence(
        "A {verb} of {actor} past the guard changed what {holder} holds: {patterns}", "{count} commits past the guard"
    ),
    "file.refusals_dismissed": Sentence("{actor} dismissed the refusals for {patterns}", "{count} refusals dismissed"),
    "file.overridden": Sentence("{actor} overrode {holder}'s reservation by a {verb}: {reason}", "{count} overrides"),
}
