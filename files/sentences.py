"""How the events of reservations read to people."""

from __future__ import annotations

from core.contributions import Sentence

SENTENCES = {
    "file.reserved": Sentence("{actor} reserved {patterns}[ for {handoff}]", "{count} reservations"),
    "file.extended": Sentence("{actor} keeps {patterns} for longer", "{count} reservations extended"),
    "file.released": Sentence("{actor} released {patterns}", "{count} reservations released"),
    "file.expired": Sentence("{patterns}[ of {holder}] is free again", "{count} reservations ran out"),
    "file.asked": Sentence("{actor} asked for {patterns}", "{count} times asked for files"),
    "file.overridden": Sentence("{actor} went over {paths} of {holder}[: {reason}]", "{count} reservations overridden"),
}
