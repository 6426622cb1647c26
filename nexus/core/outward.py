"""How this process reaches other machines: through which proxy, and by which certificates it knows them.

One rule for everything that leaves the machine, whatever library or program it uses: the usual variables count; where
there are none, git's `http.proxy` and `http.sslCAInfo`. Standard library alone: every command uses it.
"""

from __future__ import annotations

import os

PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
# The file of certificates, in the order of precedence: of OpenSSL, requests, curl and git. The first counts for all.
CERTIFICATES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO")
VARIABLES = (*PROXIES, *map(str.upper, PROXIES), *CERTIFICATES, "SSL_CERT_DIR")


def settle() -> None:
    """Set each variable under every name that libraries and programs read. As for them, the name in small letters
    takes precedence, and an empty value means none."""
    for name in PROXIES:
        if (value := os.environ.get(name, os.environ.get(name.upper()))) is not None:
            os.environ[name] = os.environ[name.upper()] = value
    first = certificates()
    for name in CERTIFICATES:
        if file := os.environ.get(name) or first:  # other programs start in other directories
            os.environ[name] = os.path.abspath(file)  # noqa: PTH100  # pathlib is slow to import


def take(proxy: str | None, file: str | None) -> None:
    """Use this proxy and this file of certificates where no variable names one."""
    if proxy and not any(name in os.environ for name in PROXIES[:3]):
        os.environ["http_proxy"] = os.environ["https_proxy"] = proxy if "://" in proxy else f"http://{proxy}"
    if file and not certificates():
        os.environ[CERTIFICATES[0]] = os.path.expanduser(file)  # noqa: PTH111  # pathlib is slow to import
    settle()


def certificates() -> str | None:
    """Return the file of certificates that counts; None where the system's own do."""
    return next((file for name in CERTIFICATES if (file := os.environ.get(name))), None)


def variables() -> dict[str, str]:
    """Return the variables, for a program that reaches other machines."""
    return {name: os.environ[name] for name in VARIABLES if name in os.environ}


def files() -> tuple[str, ...]:
    """Return the files that such a program reads for them, and where links among them lead."""
    file = certificates()
    return () if file is None else tuple(dict.fromkeys((file, os.path.realpath(file))))


def proxy_of(url: str) -> str | None:
    """Return the URL of the proxy for an address; None where it is reached directly."""
    from urllib.parse import urlsplit
    from urllib.request import getproxies, proxy_bypass

    parts, proxies = urlsplit(url), getproxies()
    if proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    return f"http://{proxy}" if proxy and "://" not in proxy else proxy
