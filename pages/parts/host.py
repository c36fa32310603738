"""Who may name this server: a guard against DNS rebinding that needs no list of a lab's machines.

A rebinding page reaches the explorer under a public domain name of its own, so that is what is refused. What an
outside page cannot rebind gets in: literal addresses, names without a dot, and private suffixes. Other names are
admitted one by one by server.allowedHosts, which Streamlit then enforces for every connection.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

PRIVATE_SUFFIXES = (".localhost", ".local", ".lan", ".internal", ".home.arpa")


def admitted(host_header: str | None, allowed_hosts: Iterable[str] = ()) -> bool:
    """Whether a Host header names this server in a way that no outside page can. No header: not a browser."""
    if host_header is None or list(allowed_hosts):
        return True  # with a list of its own, Streamlit has already refused what is not on it
    try:
        name = (urlsplit(f"//{host_header}").hostname or "").rstrip(".")
    except ValueError:
        return False
    if not name:
        return False
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return "." not in name or name.endswith(PRIVATE_SUFFIXES)
    return True
