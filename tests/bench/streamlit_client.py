"""A viewer without a browser: opens pages of a Streamlit app over its websocket and waits until each script has ended.

What is measured is the server's part of a page: from the request to the last message of its script.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from urllib.parse import urlencode

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.sync.client import ClientConnection, connect

ANSWER_S = 60.0


@dataclass(frozen=True, slots=True)
class Visit:
    """One page opened: seconds until its script ended, elements it drew, and whether it showed an exception."""

    page: str
    took_s: float
    elements: int
    failed: bool


class Viewer:
    """One session. Raises TimeoutError where a page does not end in ANSWER_S."""

    def __init__(self, address: str) -> None:
        self._socket: ClientConnection = connect(
            address.replace("http://", "ws://") + "/_stcore/stream", subprotocols=["streamlit"], max_size=None
        )

    def open(self, page: str, **link: str) -> Visit:
        """Open a page by its path, "" for the first one."""
        message = BackMsg()
        message.rerun_script.query_string = urlencode(link)
        message.rerun_script.page_name = page
        began = time.perf_counter()
        self._socket.send(message.SerializeToString())
        elements, failed = 0, False
        while True:
            part = ForwardMsg()
            part.ParseFromString(self._socket.recv(timeout=ANSWER_S))
            kind = part.WhichOneof("type")
            if kind == "delta":
                elements += 1
                failed = failed or part.delta.new_element.WhichOneof("type") == "exception"
            elif kind == "script_finished" and part.script_finished in (
                ForwardMsg.FINISHED_SUCCESSFULLY,
                ForwardMsg.FINISHED_WITH_COMPILE_ERROR,
            ):
                failed = failed or part.script_finished == ForwardMsg.FINISHED_WITH_COMPILE_ERROR
                return Visit(page, time.perf_counter() - began, elements, failed)

    def close(self) -> None:
        """End the session."""
        self._socket.close()
