"""When is a server ready? Health, one temperature-0 completion, and its reported K is the asked K. /health alone lies.

Retries live here and nowhere near a measured request.
"""

from __future__ import annotations

import time
from typing import Any, Protocol

import httpx

from backend.engines.base import Ready
from backend.errors import RunFailed
from backend.measure.counters import reported_depth

POLL_S = 0.2


class Launched(Protocol):
    """What readiness needs to know of the processes behind a server; an endpoint that already runs has none.

    `log_bytes` grows with every new line, on whatever node; `trouble` is why it is not alive, where that is known.
    """

    def alive(self) -> bool: ...
    def trouble(self) -> str | None: ...
    def log_bytes(self) -> int: ...
    def log_tail(self) -> str: ...


def wait_ready(
    base_url: str,
    k: int,
    *,
    process: Launched | None,
    ready_timeout_s: float,
    stall_timeout_s: float,
    request_timeout_s: float,
) -> Ready:
    """Wait until the server answers for depth k. Raises RunFailed: died, stalled, not_ready, http, wrong_depth."""
    began = time.monotonic()
    tail = process.log_tail if process else str
    tls = base_url.startswith("https")  # reading the certificate bundle takes longer than a request
    with httpx.Client(base_url=base_url, timeout=min(10.0, request_timeout_s), trust_env=False, verify=tls) as http:
        _wait_health(http, process, began, ready_timeout_s, stall_timeout_s)
        try:
            model_name = http.get("/v1/models").raise_for_status().json()["data"][0]["id"]
            body = {"model": model_name, "prompt": "1 2 3", "max_tokens": 2, "temperature": 0, "ignore_eos": True}
            reply = http.post("/v1/completions", json=body, timeout=request_timeout_s).raise_for_status().json()
            page = http.get("/metrics")
        except (httpx.HTTPError, KeyError, IndexError, ValueError) as error:
            raise RunFailed(
                f"healthy, but its first completion failed: {_words(error)}",
                kind="http",
                where=base_url,
                log_tail=tail(),
            ) from None
        started_s = time.monotonic() - began
        if process is not None and not process.alive():  # a head answers on without a rank that idles
            raise RunFailed(f"healthy, but not whole{_because(process)}", kind="died", where=base_url, log_tail=tail())
    reported_k = reported_depth(page.text) if page.status_code == 200 else None
    if reported_k is not None and reported_k != k:
        raise RunFailed(
            f"asked for K={k}, the server reports K={reported_k}",
            kind="wrong_depth",
            where=base_url,
            log_tail=tail(),
            fix="put {k} where the launch command sets num_speculative_tokens",
        )
    return Ready(model_name, reported_k, started_s, engine_clock=has_engine_clock(reply))


def has_engine_clock(reply: dict[str, Any]) -> bool:
    """Whether a completion carries the engine's own times (--enable-per-request-metrics)."""
    metrics = reply.get("metrics") or {}
    return metrics.get("generation_time_ms") is not None and metrics.get("time_to_first_token_ms") is not None


def _wait_health(
    http: httpx.Client, process: Launched | None, began: float, ready_timeout_s: float, stall_timeout_s: float
) -> None:
    seen_size, seen_at = -1, began
    while True:
        try:
            if http.get("/health").status_code == 200:
                return
        except httpx.HTTPError:
            pass  # not listening yet: that is what we wait for
        now = time.monotonic()
        if process is not None:
            if not process.alive():
                raise RunFailed(
                    f"the server ended while it was starting{_because(process)}",
                    kind="died",
                    log_tail=process.log_tail(),
                    fix="read the last log lines kept with this failure",
                )
            size = process.log_bytes()
            if size != seen_size:
                seen_size, seen_at = size, now
            elif now - seen_at > stall_timeout_s:
                raise RunFailed(
                    f"no new log line for {stall_timeout_s:g} s while loading",
                    kind="stalled",
                    log_tail=process.log_tail(),
                    fix="raise server.stall_timeout_s if loads are this quiet here",
                )
        if now - began > ready_timeout_s:
            raise RunFailed(
                f"not ready after {ready_timeout_s:g} s",
                kind="not_ready",
                log_tail=process.log_tail() if process else "",
                fix="raise server.ready_timeout_s if loads take this long here",
            )
        time.sleep(POLL_S)


def _because(process: Launched) -> str:
    trouble = process.trouble()
    return f": {trouble}" if trouble else ""


def _words(error: Exception) -> str:
    """An HTTP error in one line, with the server's own words where it gave any."""
    if isinstance(error, httpx.HTTPStatusError):
        return f"HTTP {error.response.status_code}: {' '.join(error.response.text.split())[:300]}"
    return f"{type(error).__name__}: {error}"
