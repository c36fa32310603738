"""What is the same for everyone: made once for a snapshot and a choice, then only shown.

Twenty colleagues who open one link ask for the same tables and charts. What is returned is shared between sessions:
show it, never change it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import streamlit as st

from pages.parts.reader import Key, Snapshot

Content = TypeVar("Content")
KEPT = 512  # of up to 100 kB; a page makes up to ten


def once(snapshot: Snapshot, what: str, *choice: object, build: Callable[[], Content]) -> Content:
    """What `build` gives. `what` and `choice` name all that it depends on besides the snapshot. It draws nothing."""
    return _once(snapshot.key, what, choice, build)


@st.cache_resource(max_entries=KEPT, show_spinner=False)
def _once(key: Key, what: str, choice: tuple[object, ...], _build: Callable[[], Content]) -> Content:
    return _build()
