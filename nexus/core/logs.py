"""Redaction of logs: API keys are removed from every line before a handler writes it."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

# What follows api_key=, what starts like a key, and what is as long as one: its prefix may have been spelt otherwise.
SECRET = re.compile(
    r"(api(?:_|%5f)key(?:=|%3d))[^&\s\"']*|nxs_[0-9a-f]{8,}|(?<![0-9a-f])[0-9a-f]{48}(?![0-9a-f])", re.IGNORECASE
)


def redact(text: str) -> str:
    """Return `text` with every API key redacted, after `api_key=` and anywhere else."""
    return SECRET.sub(lambda match: f"{match[1] or 'nxs_'}***", text)


class Redaction(logging.Filter):
    """A filter that redacts a record, its arguments and its traceback, and lets every record pass."""

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            said = record.getMessage()
        except Exception:
            return True  # a record that cannot be formatted is the handler's to report
        if (clean := redact(said)) != said:
            record.msg, record.args = clean, None
        if record.exc_info and not record.exc_text:
            # Formatters print this text, where there is one, instead of making their own.
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        if record.exc_text:
            record.exc_text = redact(record.exc_text)
        return True


def redact_logs() -> None:
    """Add the filter to every existing handler, whoever made it: a server configures its own before we start."""
    for handler in _handlers():
        if not any(isinstance(each, Redaction) for each in handler.filters):
            handler.addFilter(Redaction())


def _handlers() -> Iterator[logging.Handler]:
    yield from logging.root.handlers
    for logger in list(logging.root.manager.loggerDict.values()):
        if isinstance(logger, logging.Logger):
            yield from logger.handlers
