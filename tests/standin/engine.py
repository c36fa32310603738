"""A stand-in for vLLM, for tests only: the same HTTP, deterministic tokens, and faults on demand.

Standard library only. Run as a program (`python -S -E engine.py --port P --k K`); it is up in about 0.1 s. A token
depends on the tokens before it alone, so outputs are the same for every K; whether a draft of it is right does too, so
survival rates have no depth effect (unless poison makes one). Counters on /metrics add up with the answers' numbers.

STANDIN_FAULT scripts faults: "NAME key=value ...; NAME ...". Common keys: k (only for that depth), times (only for the
first n launches that match; needs STANDIN_STATE, a directory), after (only from that completion on, the readiness
request counted). Names: never_ready, freeze, die_start, die_mid, http500, malformed, short, drop, hang, slow (ms=),
ignore_term, child (one that outlives the server in its session), escape (one that keeps the port in a session of its
own, without environment, for s= seconds), wrong_depth, poison (percent= of drafts more that are wrong).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler
from typing import Any

from standin_model import MODEL, Engine, faults, tokenize  # beside this program


class Handler(BaseHTTPRequestHandler):
    """The routes."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    engine: Engine  # set on a subclass

    def log_message(self, format: str, *args: Any) -> None:
        """No access log."""

    def _send(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _json(self, value: Any, status: int = 200) -> None:
        self._send(status, json.dumps(value).encode())

    def do_GET(self) -> None:
        """/health, /v1/models, /version, /metrics."""
        if self.path == "/health":
            self._send(503 if "never_ready" in self.engine.faults else 200, b"")
        elif self.path == "/v1/models":
            self._json({"object": "list", "data": [{"id": MODEL, "object": "model"}]})
        elif self.path == "/version":
            self._json({"version": "0.32.0-standin"})
        elif self.path == "/metrics":
            self._send(200, self.engine.page().encode(), "text/plain; version=0.0.4")
        else:
            self._json({"detail": "Not Found"}, 404)

    def do_POST(self) -> None:
        """/tokenize and completions, chat or not, streamed or not."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/tokenize":
            tokens = tokenize(body["prompt"])
            self._json({"count": len(tokens), "max_model_len": 4096, "tokens": tokens})
            return
        chat = self.path == "/v1/chat/completions"
        with self.engine.lock:
            self.engine.completions += 1
        if self.engine.fault("die_mid") is not None:
            print("RuntimeError: the engine core died", flush=True)
            os._exit(1)
        if self.engine.fault("hang") is not None:
            time.sleep(3600)
        if self.engine.fault("http500") is not None:
            self._json({"error": {"message": "EngineCore encountered an issue", "code": 500}}, 500)
            return
        if self.engine.fault("malformed") is not None:
            self._json({"object": "text_completion"})
            return
        prompt = body["messages"][-1]["content"] if chat else body["prompt"]
        if body.get("stream"):
            self._stream(prompt, body, chat)
            return
        done = self.engine.complete(prompt, body, lambda _tokens: None)
        if self.engine.fault("drop") is not None:
            self._drop(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")
            return
        text = " ".join(map(str, done["tokens"]))
        said: dict[str, Any] = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
        ids = done["tokens"] if body.get("return_token_ids") else None
        choice = {"index": 0, **said, "finish_reason": done["reason"], "token_ids": ids}
        self._json({"model": MODEL, "choices": [choice], "usage": done["usage"], "metrics": done["metrics"]})

    def _drop(self, last_words: bytes) -> None:
        self.wfile.write(last_words)
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True

    def _stream(self, prompt: str | list[int], body: dict[str, Any], chat: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()

        def send(event: dict[str, Any]) -> None:
            self.wfile.write(b"data: " + json.dumps({"model": MODEL, **event}).encode() + b"\n\n")
            self.wfile.flush()

        def emit(tokens: list[int]) -> None:
            text = " ".join(map(str, tokens))
            said: dict[str, Any] = {"delta": {"content": text}} if chat else {"text": text}
            send({"choices": [{"index": 0, **said, "finish_reason": None, "token_ids": tokens}]})

        done = self.engine.complete(prompt, body, emit)
        if self.engine.fault("drop") is not None:
            self._drop(b"data: {")
            return
        end: dict[str, Any] = {"delta": {}} if chat else {"text": ""}
        send({"choices": [{"index": 0, **end, "finish_reason": done["reason"], "token_ids": []}]})
        send({"choices": [], "usage": done["usage"], "metrics": done["metrics"]})
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True


class HttpServer(socketserver.ThreadingTCPServer):
    """TCPServer, because HTTPServer looks its own name up and that can be slow."""

    allow_reuse_address, daemon_threads, request_queue_size = True, True, 64


def main() -> None:
    """Start, script the faults, serve until SIGTERM."""
    options = argparse.ArgumentParser()
    options.add_argument("--host", default="127.0.0.1")
    options.add_argument("--port", type=int, required=True)
    options.add_argument("--k", type=int, default=int(os.environ.get("STANDIN_K", "0")))
    options.add_argument("--no-clocks", action="store_true", help="answers carry no per-request metrics")
    options.add_argument("--start-s", type=float, default=0.0, help="how long loading takes")
    asked = options.parse_args()
    active = faults(asked.k)
    print(f"loading the stand-in for K={asked.k}, faults: {', '.join(active) or 'none'}", flush=True)
    time.sleep(asked.start_s)
    if "die_start" in active:
        sys.exit("ValueError: No available memory for the cache blocks")
    if "freeze" in active:
        time.sleep(3600)
    signal.signal(signal.SIGTERM, signal.SIG_IGN if "ignore_term" in active else lambda *_: os._exit(0))
    if "child" in active and os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(3600)
    reported = asked.k + 1 if "wrong_depth" in active else asked.k
    engine = Engine(asked.k, reported, active, not asked.no_clocks)
    server = HttpServer((asked.host, asked.port), type("Bound", (Handler,), {"engine": engine}))
    if "escape" in active:
        hold = f"import time; time.sleep({active['escape'].get('s', '20')})"
        nothing = subprocess.DEVNULL
        subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", hold],
            env={},
            stdin=nothing,
            stdout=nothing,
            stderr=nothing,
            start_new_session=True,
            pass_fds=[server.fileno()],
        )
    if "never_ready" in active:

        def still_loading() -> None:
            for shard in range(100000):
                print(f"loading shard {shard}", flush=True)
                time.sleep(0.1)

        threading.Thread(target=still_loading, daemon=True).start()
    print("ready", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
