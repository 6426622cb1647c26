"""Settings of the topics app."""

from __future__ import annotations

from urllib.parse import urlsplit

from nexus.core.config import Settings, section, setting

MAX_MODEL = 1000


def _check_model(text: str) -> None:
    if len(text) > MAX_MODEL or not text.isprintable():
        raise ValueError(f"use the absolute path of a folder or a service's name, at most {MAX_MODEL} characters")


def _check_url(text: str) -> None:
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if text and not (usable and text.isprintable() and " " not in text):
        raise ValueError("use a URL that starts with http:// or https://, such as http://localhost:11434/v1")
    if text and parts.username is not None:
        raise ValueError("use a URL without credentials; the key belongs in the variable NEXUS_EMBEDDING_KEY")


@section
class TopicSettings(Settings):
    """Settings of the semantic search of topics."""

    embedding_model: str = setting(
        "",
        "The model for searching topics by meaning: the absolute path of a folder, or the name that the service at "
        "embedding_url uses. Empty: only full-text search. Needs the extra `semantic`.",
        check=_check_model,
    )
    # The key is sent to this address. So it must come from where the key comes from, never from a page.
    embedding_url: str = setting(
        "",
        "A service for embedding_model that speaks OpenAI's protocol, such as http://localhost:11434/v1; its key is "
        "in the environment variable NEXUS_EMBEDDING_KEY. The texts of topics are sent to it.",
        check=_check_url,
        live=False,
    )
