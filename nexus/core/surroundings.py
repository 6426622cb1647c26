"""What this process takes from the place where it was started: its streams, the user's home, its umask, and how it
reaches other machines. Every command settles that here, first. Standard library alone."""

from __future__ import annotations

import os
import sys

KINDS = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
PROXIES = (*KINDS, *(kind.upper() for kind in KINDS))
# The file of certificates that counts for everything, in the order of precedence: OpenSSL, requests, curl, git.
CERTIFICATES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO")
OUTWARD = (*PROXIES, *CERTIFICATES, "SSL_CERT_DIR")  # the variables of everything that leaves this machine


def settle() -> None:
    """Replace what is missing or of no use, for this process and those that it starts."""
    open_streams()
    os.umask(os.umask(0o077) & 0o077)  # a file of ours is for its owner to use, at least
    if not os.environ.get("HOME", "").startswith(os.sep):
        os.environ.pop("HOME", None)
        if not os.path.expanduser("~").startswith(os.sep):  # noqa: PTH111  # pathlib is slow to import
            os.environ["HOME"] = os.sep  # as containers have it for a user that the system does not know
    trust(next(filter(None, map(os.environ.get, CERTIFICATES)), ""))


def trust(certificates: str) -> None:
    """Let every library and program check other machines by this file, where no variable of its own names another."""
    if certificates:
        for name in CERTIFICATES:
            os.environ.setdefault(name, certificates)


def open_streams() -> None:
    """Open the null device for closed descriptors, which the next opened file would get; show what the terminal's
    encoding lacks as an escape."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
        elif number:
            getattr(sys, name).reconfigure(errors="backslashreplace")
