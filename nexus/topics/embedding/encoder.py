"""Sentence embeddings of the BERT family on a CPU, in NumPy, without a framework that takes seconds to start.

A model is a folder as Sentence Transformers writes it: config.json, tokenizer.json, model.safetensors.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load
from threadpoolctl import threadpool_limits
from tokenizers import Tokenizer

Array = NDArray[np.float32]

WEIGHTS, LONGEST = "model.safetensors", 512  # tokens; for folders that do not say


class Encoder:
    """A model in memory. Raises OSError, ValueError or KeyError for a folder without a model of this family."""

    def __init__(self, name: str, folder: Path) -> None:
        config = _read(folder / "config.json")
        if config.get("model_type") != "bert" or config.get("hidden_act", "gelu") != "gelu":
            raise ValueError("the model is not of the BERT family")
        if any(module["type"].endswith("Dense") for module in _read(folder / "modules.json", [])):
            raise ValueError("the model has a dense layer behind its pooling")
        # One core: several would spin while they wait for one another, and delay all other work.
        threadpool_limits(1, "blas")
        stored = (folder / WEIGHTS).read_bytes()
        self.weights = {key.removeprefix("bert."): _single(value) for key, value in load(stored).items()}
        self.layers, self.heads = config["num_hidden_layers"], config["num_attention_heads"]
        self.epsilon = config.get("layer_norm_eps", 1e-12)
        self.first_token = _read(folder / "1_Pooling" / "config.json", {}).get("pooling_mode_cls_token", False)
        longest = _read(folder / "sentence_bert_config.json", {}).get("max_seq_length") or LONGEST
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(min(longest, config["max_position_embeddings"]))
        self.identity = f"{name}@{hashlib.sha256(stored).hexdigest()[:16]}"
        self.dimension = len(self.embed(["one to see whether all weights are there"])[0])

    def embed(self, texts: Sequence[str]) -> Array:
        """Return a row of `dimension` numbers for each text, of any length; text beyond the model's maximum is cut."""
        return np.stack([self._embed(text) for text in texts])

    def _embed(self, text: str) -> Array:
        tokens = self.tokenizer.encode(text).ids
        weights = self.weights
        states = (
            weights["embeddings.word_embeddings.weight"][tokens]
            + weights["embeddings.position_embeddings.weight"][: len(tokens)]
            + weights["embeddings.token_type_embeddings.weight"][0]
        )
        states = self._normed("embeddings.LayerNorm", states)
        for layer in range(self.layers):
            states = self._layer(f"encoder.layer.{layer}.", states)
        return states[0] if self.first_token else _single(states.mean(axis=0))

    def _layer(self, at: str, states: Array) -> Array:
        length, width = states.shape
        query, key, value = (
            self._dense(f"{at}attention.self.{part}", states).reshape(length, self.heads, -1).transpose(1, 0, 2)
            for part in ("query", "key", "value")
        )
        scores = query @ key.transpose(0, 2, 1) / np.float32((width / self.heads) ** 0.5)
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        attended = (scores @ value).transpose(1, 0, 2).reshape(length, width)
        attended = self._dense(f"{at}attention.output.dense", attended)
        states = self._normed(f"{at}attention.output.LayerNorm", states + attended)
        wide = _gelu(self._dense(f"{at}intermediate.dense", states))
        return self._normed(f"{at}output.LayerNorm", states + self._dense(f"{at}output.dense", wide))

    def _dense(self, name: str, states: Array) -> Array:
        return _single(states @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"])

    def _normed(self, name: str, states: Array) -> Array:
        centred = states - states.mean(axis=-1, keepdims=True)
        deviation = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + self.epsilon)
        return _single(centred / deviation * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"])


def _gelu(x: Array) -> Array:
    """Return the exact GELU, with the error function of Abramowitz and Stegun, 7.1.26, to seven digits."""
    z = np.abs(x) * np.float32(0.5**0.5)
    t = 1 / (1 + np.float32(0.3275911) * z)
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    return _single(x * 0.5 * (1 + np.sign(x) * (1 - series * np.exp(-z * z))))


def _single(values: NDArray[Any]) -> Array:
    return values.astype(np.float32, copy=False)


def _read(file: Path, default: Any = None) -> Any:
    """Return the content of a JSON file, or `default` where it is missing. Raises OSError where there is no default."""
    if default is not None and not file.exists():
        return default
    return json.loads(file.read_text(encoding="utf-8"))
