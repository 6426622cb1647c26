"""Writes the reference from the code, into docs/made, for `make docs`."""

from __future__ import annotations

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "nexus_site.settings")
django.setup()

from nexus_site import reference  # noqa: E402  # the apps first
from nexus_site.settings import BASE_DIR  # noqa: E402

MADE = BASE_DIR / "docs" / "made"
HEAD = "<!-- Made from the code by `make docs`; change the code, not this page. -->\n\n"


def main() -> None:
    MADE.mkdir(exist_ok=True)
    for name, make in reference.pages().items():
        (MADE / name).write_text(HEAD + make(), encoding="utf-8")


if __name__ == "__main__":
    main()
