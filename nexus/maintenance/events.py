"""The events of maintenance, and the sentences that pages show for them."""

from __future__ import annotations

from nexus.core.contributions import Sentence

SENTENCES = {
    "history.restored": Sentence("{actor} restored a backup", "{count} restored backups"),
    "retention.pruned": Sentence("{actor} deleted rows past their retention", "{count} prunings"),
    "database.reset": Sentence("{actor} emptied the store", "{count} times the store was emptied"),
}
