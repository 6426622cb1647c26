"""A model that the suite makes itself: a table of few words, with one vector for each concept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from model2vec import StaticModel
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

CONCEPTS = ("car vehicle automobile", "broken defect fault", "money invoice payment", "cat kitten feline")


def make(folder: Path, concepts: Sequence[str] = CONCEPTS, width: int = 8) -> str:
    """Write the model into a folder; its path."""
    folder.mkdir(parents=True, exist_ok=True)
    words = {"[UNK]": 0} | {
        word: number for number, word in enumerate((word for line in concepts for word in line.split()), 1)
    }
    embedded = np.zeros((len(words), width), np.float32)
    for concept, line in enumerate(concepts):
        embedded[[words[word] for word in line.split()], concept] = 1
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    StaticModel(embedded, tokenizer).save_pretrained(folder)
    return str(folder)
