"""Sentences for maintenance's events."""

from __future__ import annotations

from nexus.core.contributions import Sentence

SENTENCES = {
    "history.restored": Sentence("{actor} brought a history back", "{count} histories brought back"),
    "retention.pruned": Sentence("{actor} pruned what was past its window", "{count} prunings"),
    "database.reset": Sentence("{actor} emptied the store", "{count} times the store was emptied"),
}
