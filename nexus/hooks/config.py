"""The settings of this app."""

from __future__ import annotations

from urllib.parse import urlsplit

from nexus.core.config import Settings, section, setting


def _check_url(text: str) -> None:
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.query and not parts.fragment
    except ValueError:
        usable = False
    if text and not (usable and text.isprintable() and " " not in text and parts.username is None):
        raise ValueError("use the hub's address, such as https://nexus.example.org")


@section
class HookSettings(Settings):
    """How notices lead back to this hub."""

    public_url: str = setting(
        "",
        "The address of this hub as phones and other machines reach it, such as https://nexus.example.org. Links in "
        "notices begin with it; without it they have none.",
        check=_check_url,
    )
