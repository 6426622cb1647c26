"""The model that the settings name: loaded at its first use, once per process; after a failure, again some time later.

These functions may take long. Do not call them on the event loop, the writer's thread or a reader's.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from nexus.core.clock import now
from nexus.core.installation import needs_extra
from nexus.topics.config import TopicSettings
from nexus.topics.toolset import Unavailable

if TYPE_CHECKING:
    from nexus.topics.embedding.local import Local
    from nexus.topics.embedding.vectors import Array

log = logging.getLogger(__name__)

RETRY = timedelta(minutes=1)  # after a failure


def off() -> str:
    """Return how to have search by meaning."""
    return (
        f"Search by meaning is off here. {needs_extra('It', 'semantic')}, and the setting embedding_model "
        "(NEXUS_EMBEDDING_MODEL) names its model."
    )


@dataclass(frozen=True)
class _Known:
    """The state of a model: loaded, or failed."""

    model: str  # embedding_model
    embedder: Local | None
    failure: str = ""
    retry_at: datetime | None = None

    def failing(self) -> bool:
        return self.retry_at is not None and now() < self.retry_at


_known = _Known("", None)
_loading = threading.Lock()


def is_enabled() -> bool:
    """Return whether a model is named and has not just failed. Loads nothing."""
    model = TopicSettings.current().embedding_model
    return bool(model) and not (_known.model == model and _known.failing())


def loaded() -> Local | None:
    """Return the model if it is in memory. Loads nothing and does not wait."""
    known = _known
    return known.embedder if known.model == TopicSettings.current().embedding_model and not known.failing() else None


def current() -> Local:
    """Return the model; the first call loads it. Raises Unavailable."""
    global _known
    with _loading:
        model = TopicSettings.current().embedding_model
        if not model:
            raise Unavailable(off())
        if _known.model == model and _known.failing():
            raise Unavailable(_known.failure)
        if _known.model != model or _known.embedder is None:
            _known = _Known(model, None)  # releases the former model's memory before the next one is loaded
            try:
                _known = _Known(model, _load(model))
            except Unavailable as failure:
                _known = _Known(model, None, str(failure), now() + RETRY)
                raise
        assert _known.embedder is not None
        return _known.embedder


def embed(texts: Sequence[str]) -> tuple[Local, Array]:
    """Return the model, and a row of unit length for each text. Raises Unavailable."""
    global _known
    embedder = current()
    from nexus.topics.embedding.vectors import unit

    try:
        return embedder, unit(embedder.embed(texts))
    except Unavailable as failure:
        with _loading:
            if _known.embedder is embedder:  # and the settings have not changed meanwhile
                _known = replace(_known, embedder=None, failure=str(failure), retry_at=now() + RETRY)
        raise


def _load(folder: str) -> Local:
    # The library would look for any other name on the network.
    if not (Path(folder).is_absolute() and Path(folder).is_dir()):
        raise Unavailable(f"The embedding model {folder!r} is not there: give the absolute path of a folder.")
    try:
        from nexus.topics.embedding.local import Local

        return Local(folder)
    except ImportError:
        raise Unavailable(off()) from None
    except Exception:
        log.exception("the embedding model %s cannot be loaded", folder)
        raise Unavailable(
            f"The embedding model {folder!r} cannot be loaded, and the log has the cause: it must be a static model of "
            "Model2Vec."
        ) from None
