"""Checks paths and addresses in a pipeline's file, as texts. Knows only text."""

import ipaddress
import os
import re
from typing import Final
from urllib.parse import urlsplit

_NAME_MAX_BYTES: Final = 255
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://|/)")


_NO_URLS: Final = (
    "and files are moved by rename here, which needs a mounted file system; write the path of a directory, or for an "
    "archive or the checkpoint s3://, gs://, abfss:// or webhdfs://"
)
_NO_RPC: Final = (
    "whose own protocol needs a JVM, which executors do not have: write webhdfs://NAMENODE:9870/PATH for an archive "
    "or the checkpoint (swebhdfs:// over TLS), with the port of its HTTP"
)


_HOST: Final = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9_][A-Za-z0-9_-]{0,62}(\.[A-Za-z0-9_][A-Za-z0-9_-]{0,62})*\.?")
_NUMBERS: Final = re.compile(r"[0-9.]+")
_PATH_AND_QUERY: Final = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*")
"""Characters that RFC 3986 allows after the host; anything else is percent-encoded."""


def path_fault(path: str, no_urls: str = _NO_URLS) -> str | None:
    """What is wrong with a path, or None. `no_urls`: the end of a sentence that says why it may not be a URL.

    >>> path_fault("./archive"), path_fault("file:///data/archive")
    (None, 'is a URL; write the plain path: /data/archive')
    """
    if not path.strip():
        return "is empty; write a path"
    if "\0" in path:
        return "has a character that no path may have"
    if any(len(os.fsencode(name)) > _NAME_MAX_BYTES for name in path.split("/")):
        return f"has a name of more than {_NAME_MAX_BYTES} bytes, which no file can have"
    scheme = _SCHEME.match(path)
    if scheme is not None and scheme[1].lower() == "file":
        return f"is a URL; write the plain path: /{path[scheme.end() :].lstrip('/')}"
    if scheme is not None:
        is_hdfs = scheme[1].lower() == "hdfs" and no_urls == _NO_URLS
        return f"is a URL ({scheme[1]}:), {_NO_RPC if is_hdfs else no_urls}"
    if path.startswith("~"):
        return "begins with '~', which is not replaced by a home directory here; write the whole path"
    return None


def url_fault(url: str) -> str | None:
    """What is wrong with a server's address, or None.

    >>> url_fault("https://search:9200"), url_fault("search:9200")
    (None, 'is not an address such as https://host:port/path')
    """
    try:
        parts = urlsplit(url)
        port_is_wrong = parts.port == 0
    except ValueError:
        return "is not an address such as https://host:port/path"
    if parts.hostname and not is_host(parts.hostname):
        return "has characters that no address of a server has"
    if parts.scheme not in ("http", "https") or not parts.hostname or port_is_wrong:
        return "is not an address such as https://host:port/path"
    if parts.username is not None or parts.password is not None:
        return "has a credential in it; name one of the environment or of a file instead"
    if parts.fragment or not url.isascii() or any(char.isspace() for char in url):
        return "has characters that no address of a server has"
    # Searched in the original text: splitting removes tabs and newlines.
    if not _PATH_AND_QUERY.fullmatch(url.partition("://")[2].partition("/")[2] + parts.query):
        return "has characters behind the server that have to be written as %XX"
    return None


def is_host(text: str) -> bool:
    """Whether this is a valid host: a name, or an IPv4 or IPv6 address.

    >>> is_host("search-1.example.com"), is_host("::1"), is_host("a..b"), is_host("256.1.1.1")
    (True, True, False, False)
    """
    try:
        if ":" in text:
            ipaddress.IPv6Address(text)
        elif _NUMBERS.fullmatch(text):
            ipaddress.IPv4Address(text)
        else:
            return _HOST.fullmatch(text) is not None
    except ValueError:
        return False
    return True
