"""Ask an engine one thing at a time and keep exactly what it said: no retries, no interpretation.

Engine-side times come with the answer. Streaming is the fallback for engines that do not report them; there the
arrival times of chunks are the clock, and tokens still come from `usage`, never from counting chunks.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from backend.errors import RunFailed


@dataclass(frozen=True, slots=True)
class Answer:
    """One completed request as received. first/last_chunk_s: seconds since sending, streaming only."""

    started_unix_s: float
    client_total_s: float
    usage: dict[str, Any]
    metrics: dict[str, Any]  # vLLM's per-request metrics; empty when the engine gives none
    token_ids: tuple[int, ...] | None
    text: str
    finish_reason: str | None
    first_chunk_s: float | None = None
    last_chunk_s: float | None = None
    first_chunk_tokens: int | None = None


class Client:
    """Requests to one server. Thread-safe: concurrency is several threads on one client."""

    def __init__(self, base_url: str, request_timeout_s: float, connections: int = 1) -> None:
        limits = httpx.Limits(max_connections=connections + 1, max_keepalive_connections=connections + 1)
        # trust_env off: a proxy in the user's environment must not stand between us and the server;
        # verify only for TLS: reading the certificate bundle takes longer than a request
        tls = base_url.startswith("https")
        self.http = httpx.Client(
            base_url=base_url, timeout=request_timeout_s, limits=limits, trust_env=False, verify=tls
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def tokenize(self, text: str, model: str, *, add_special_tokens: bool = False) -> list[int]:
        """Token ids of a prompt by the server's own tokenizer (vLLM's /tokenize); completions add special tokens."""
        body = {"model": model, "prompt": text, "add_special_tokens": add_special_tokens}
        return list(self._json("/tokenize", body)["tokens"])

    def version(self) -> str | None:
        """The engine's version, where it tells."""
        try:
            return str(self.http.get("/version").raise_for_status().json()["version"])
        except (httpx.HTTPError, KeyError, ValueError):
            return None

    def collective_rpc(self, method: str, arguments: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """Call a method of the worker extension on every rank (vLLM's development endpoint); an answer a rank."""
        results = self._json("/collective_rpc", {"method": method, "args": list(arguments)}).get("results")
        if not isinstance(results, list) or not all(isinstance(result, dict) for result in results):
            raise RunFailed(f"{method} gave no object for every rank", kind="http", where="/collective_rpc")
        return results

    def ask(self, path: str, body: dict[str, Any]) -> Answer:
        """One request without streaming."""
        started, began = time.time(), time.perf_counter()
        reply = self._json(path, body)
        took_s = time.perf_counter() - began
        try:
            choice = reply["choices"][0]
            ids = choice.get("token_ids")
            text = choice.get("text") if "text" in choice else (choice.get("message") or {}).get("content")
        except (KeyError, IndexError, TypeError, AttributeError):
            raise RunFailed("the answer holds no choice", kind="http", where=path) from None
        return Answer(
            started,
            took_s,
            reply.get("usage") or {},
            reply.get("metrics") or {},
            tuple(ids) if ids is not None else None,
            text or "",
            choice.get("finish_reason"),
        )

    def ask_streaming(self, path: str, body: dict[str, Any]) -> Answer:
        """One streamed request. Reasoning tokens count like all others: any chunk with a choice is output."""
        started, began = time.time(), time.perf_counter()
        first = last = None
        ids: list[int] = []
        has_ids, first_tokens, finish, parts = True, None, None, []
        usage: dict[str, Any] = {}
        metrics: dict[str, Any] = {}
        body = {**body, "stream": True, "stream_options": {"include_usage": True}}
        try:
            with self.http.stream("POST", path, json=body) as reply:
                if reply.status_code != 200:
                    reply.read()
                    raise _refusal(reply)
                for line in reply.iter_lines():
                    if not line.startswith("data: ") or line == "data: [DONE]":
                        continue
                    chunk = json.loads(line[6:])
                    usage, metrics = chunk.get("usage") or usage, chunk.get("metrics") or metrics
                    if "error" in chunk:
                        raise RunFailed(f"the stream broke off: {chunk['error']}", kind="http", where=path)
                    for choice in chunk.get("choices", ()):
                        delta = choice.get("delta") or {}
                        finish = choice.get("finish_reason") or finish
                        got = choice.get("token_ids")
                        text = (
                            choice.get("text")
                            or delta.get("content")
                            or delta.get("reasoning_content")
                            or delta.get("reasoning")
                            or ""
                        )
                        if not text and not got:
                            continue  # a role-only or finish-only chunk carries no token
                        last = time.perf_counter() - began
                        if first is None:
                            first, first_tokens = last, len(got) if got is not None else None
                        has_ids = has_ids and got is not None
                        ids += got or ()
                        parts.append(text)
        except (httpx.HTTPError, json.JSONDecodeError) as error:
            raise RunFailed(f"the stream broke off: {type(error).__name__} {error}", kind="http", where=path) from None
        return Answer(
            started,
            time.perf_counter() - began,
            usage,
            metrics,
            tuple(ids) if has_ids and ids else None,
            "".join(parts),
            finish,
            first,
            last,
            first_tokens,
        )

    def _json(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        try:
            reply = self.http.post(path, json=body)
        except httpx.HTTPError as error:
            raise RunFailed(f"no answer: {type(error).__name__} {error}", kind="http", where=path) from None
        if reply.status_code != 200:
            raise _refusal(reply)
        try:
            return dict(reply.json())
        except (ValueError, TypeError):
            raise RunFailed("the answer is not a JSON object", kind="http", where=path) from None


def _refusal(reply: httpx.Response) -> RunFailed:
    return RunFailed(
        f"HTTP {reply.status_code}: {' '.join(reply.text.split())[:300]}", kind="http", where=reply.request.url.path
    )
