"""Lists as files: CSV that no spreadsheet takes for formulas, and JSON by the line."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from io import StringIO
from itertools import chain
from typing import Any

from django.http import StreamingHttpResponse

from nexus.web.page import streamed

KINDS = {"csv": "text/csv; charset=utf-8", "ndjson": "application/x-ndjson; charset=utf-8"}


def as_file(texts: Iterator[str], name: str, kind: str) -> StreamingHttpResponse:
    """Return a file of one of `KINDS`, sent piece by piece. Raises what its first piece raises."""
    first = next(texts, "")  # an error of the store must come before the response
    response = StreamingHttpResponse(streamed(chain([first], texts)), content_type=KINDS[kind])
    response.headers["Content-Disposition"] = f'attachment; filename="{name}.{kind}"'
    return response


def table(rows: Iterable[Iterable[Any]]) -> str:
    """Return rows as CSV."""
    text = StringIO()
    csv.writer(text).writerows([map(_cell, row) for row in rows])
    return text.getvalue()


def _cell(value: Any) -> Any:
    """Return a cell that no spreadsheet takes for a formula; a list or an object as JSON."""
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
