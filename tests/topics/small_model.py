"""A model that the suite makes itself: a BERT of one layer that knows few words, and one vector for each concept."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
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
    tokenizer.save(str(folder / "tokenizer.json"))
    layer = "encoder.layer.0."
    shapes = {
        **{f"{layer}attention.self.{part}": (width, width) for part in ("query", "key", "value")},
        f"{layer}attention.output.dense": (width, width),
        f"{layer}intermediate.dense": (2 * width, width),
        f"{layer}output.dense": (width, 2 * width),
    }
    norms = ["embeddings.LayerNorm", f"{layer}attention.output.LayerNorm", f"{layer}output.LayerNorm"]
    weights = {
        "embeddings.word_embeddings.weight": embedded,
        "embeddings.position_embeddings.weight": np.zeros((64, width), np.float32),
        "embeddings.token_type_embeddings.weight": np.zeros((2, width), np.float32),
        **{f"{name}.weight": np.zeros(shape, np.float32) for name, shape in shapes.items()},
        **{f"{name}.bias": np.zeros(shape[0], np.float32) for name, shape in shapes.items()},
        **{f"{name}.weight": np.ones(width, np.float32) for name in norms},
        **{f"{name}.bias": np.zeros(width, np.float32) for name in norms},
    }
    save_file(weights, str(folder / "model.safetensors"))
    config = {
        "model_type": "bert",
        "hidden_act": "gelu",
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "max_position_embeddings": 64,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)
