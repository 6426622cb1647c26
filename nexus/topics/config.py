"""Settings of the topics app."""

from __future__ import annotations

from nexus.core.config import Settings, section, setting

MAX_MODEL = 1000


def _check_model(text: str) -> None:
    if len(text) > MAX_MODEL or not text.isprintable():
        raise ValueError(f"use the absolute path of a folder, at most {MAX_MODEL} characters")


@section
class TopicSettings(Settings):
    """Settings of the semantic search of topics."""

    embedding_model: str = setting(
        "",
        "The model for searching topics by meaning: the absolute path of a folder with a static model of Model2Vec. "
        "Empty: only full-text search. Needs the extra `semantic`.",
        check=_check_model,
    )
