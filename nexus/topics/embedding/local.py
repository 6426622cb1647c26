"""Embeddings on this machine: a static model of Model2Vec, a table of words that needs no framework and no GPU."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Sequence

from model2vec import StaticModel

from nexus.topics.embedding.vectors import Array

# A batch takes milliseconds on one core, and the library's threads would warn at each fork of the hub.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


class Local:
    """A model in memory, from a folder. Raises what the library raises for a folder without a static model."""

    def __init__(self, folder: str) -> None:
        self._model = StaticModel.from_pretrained(folder)
        self._one_call = threading.Lock()  # the library sets up its tokenizer anew in each call
        self.identity = f"{folder}@{hashlib.sha256(self._model.embedding.tobytes()).hexdigest()[:16]}"
        self.dimension = self._model.dim

    def embed(self, texts: Sequence[str]) -> Array:
        """Return a row of `dimension` numbers for each text, of any length; text beyond the model's maximum is cut."""
        with self._one_call:
            return self._model.encode(texts, use_multiprocessing=False)
