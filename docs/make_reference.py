"""Writes the reference from the code, for `make docs`: docs/reference/errors.md, and all pages into docs/made."""

from __future__ import annotations

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "nexus_site.settings")
django.setup()

from nexus_site import reference  # noqa: E402  # the apps first
from nexus_site.settings import BASE_DIR  # noqa: E402

DOCS = BASE_DIR / "docs"
MADE = "<!-- Made from the code by `make docs`; change the code, not this page. -->\n\n"


def main() -> None:
    pages = {name: MADE + make() for name, make in reference.pages().items()}
    (DOCS / "made").mkdir(exist_ok=True)
    for name, text in pages.items():
        (DOCS / "made" / name).write_text(text, encoding="utf-8")
    (DOCS / "reference" / "errors.md").write_text(pages["errors.md"], encoding="utf-8")


if __name__ == "__main__":
    main()
