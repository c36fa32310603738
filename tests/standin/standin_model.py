"""What the stand-in computes and counts: scripted faults, tokens, drafts, a /metrics page. Standard library only."""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

MODEL = "standin"
PREFILL_S, STEP_S, STEP_PER_DRAFT_S = 0.002, 0.0003, 0.00005


def dice(*parts: object) -> int:
    """A number that depends on these parts alone."""
    return int.from_bytes(hashlib.blake2b("|".join(map(str, parts)).encode(), digest_size=4).digest(), "big")


def words(text: str) -> list[str]:
    """A toy tokenizer."""
    return re.findall(r"\w+|\s+|[^\w\s]", text)


def tokenize(text: str) -> list[int]:
    """A text's token ids."""
    return [dice(word) % 32000 for word in words(text)]


def continuation(ids: list[int], length: int, share: int) -> tuple[list[int], list[bool]]:
    """The next `length` tokens, and whether a draft of each is right (in `share` of 100 cases). Both depend on the
    tokens before alone, so that a prompt with a part of its answer goes on as the answer did."""
    context = hashlib.blake2b(",".join(map(str, ids)).encode(), digest_size=4)
    tokens, lucky = [], []
    for _ in range(length):
        number = int.from_bytes(context.digest(), "big")
        tokens.append(number % 32000)
        lucky.append(dice(number, "draft") % 100 < share)
        context.update(f",{tokens[-1]}".encode())
    return tokens, lucky


class Fault(dict[str, str]):
    """One scripted fault; `name` and its keys."""

    def __init__(self, text: str) -> None:
        self.name, *pairs = text.split()
        super().__init__(pair.split("=", 1) for pair in pairs)


def faults(k: int) -> dict[str, Fault]:
    """The faults of this launch."""
    found = {}
    for index, text in enumerate(filter(str.strip, os.environ.get("STANDIN_FAULT", "").split(";"))):
        fault = Fault(text)
        if int(fault.get("k", k)) != k:
            continue
        if "times" in fault:
            count = Path(os.environ["STANDIN_STATE"]) / f"launches-{index}"
            with count.open("ab") as file:
                file.write(b"x")
            if count.stat().st_size > int(fault["times"]):
                continue
        found[fault.name] = fault
    return found


class Engine:
    """What the server computes and counts."""

    def __init__(self, k: int, reported_k: int, active: dict[str, Fault], clocks: bool) -> None:
        self.k, self.reported_k, self.faults, self.clocks = k, reported_k, active, clocks
        self.lock = threading.Lock()
        self.completions = self.running = 0
        self.total = dict.fromkeys(
            ("generated", "prompt", "drafts", "drafted", "accepted", "iterations", "stop", "length"), 0
        )
        self.per_position = [0] * max(k, reported_k)

    def fault(self, name: str) -> Fault | None:
        """The fault of this name, where it applies to the completion under way."""
        fault = self.faults.get(name)
        return fault if fault is not None and self.completions > int(fault.get("after", 0)) else None

    def complete(
        self, prompt: str | list[int], body: dict[str, Any], emit: Callable[[list[int]], None]
    ) -> dict[str, Any]:
        """Generate, with a call of `emit` for every step's tokens; counters are right before the answer leaves."""
        key = json.dumps(prompt)
        ids = prompt if isinstance(prompt, list) else tokenize(prompt)
        n_prompt = len(ids)
        wanted = int(body.get("max_tokens", 16))
        stops = not body.get("ignore_eos") and dice(key, "eos") % 4 == 0
        n_tokens = max(1, wanted // 2) if stops else wanted
        if self.fault("short") is not None:
            n_tokens = max(1, n_tokens - 3)
        poison = self.fault("poison")
        share = 70 - int(poison["percent"] if poison else 0)
        everything, lucky = continuation(ids, n_tokens + self.k, share)
        tokens = everything[:n_tokens]
        drafted, accepted, chunks, emitted = [], [], [tokens[:1]], 1
        while emitted < n_tokens:
            right = 0
            while right < self.k and lucky[emitted + right]:
                right += 1
            drafted.append(self.k)
            accepted.append(right)
            chunks.append(tokens[emitted : emitted + right + 1])
            emitted += right + 1
        slow = self.fault("slow")
        step_s = STEP_S + self.k * STEP_PER_DRAFT_S + float(slow["ms"] if slow else 0) / 1e3
        with self.lock:
            self.running += 1
        began = time.perf_counter()
        time.sleep(PREFILL_S)
        emit(chunks[0])
        first = time.perf_counter()
        for chunk in chunks[1:]:
            time.sleep(step_s)
            emit(chunk)
        last = time.perf_counter()
        reason = "stop" if stops else "length"
        with self.lock:
            self.running -= 1
            total = self.total
            total["generated"] += n_tokens
            total["prompt"] += n_prompt
            total["iterations"] += 1 + len(accepted)
            total[reason] += 1
            if self.k:
                total["drafts"] += len(accepted)
                total["drafted"] += sum(drafted)
                total["accepted"] += sum(accepted)
                for position in range(self.k):
                    self.per_position[position] += sum(count > position for count in accepted)
        metrics: dict[str, Any] = {}
        if self.clocks:
            metrics = {
                "time_to_first_token_ms": 1e3 * (first - began),
                "generation_time_ms": 1e3 * (last - first),
                "queue_time_ms": 0.02,
            }
            if self.k:
                metrics["speculative_decoding"] = {
                    "num_spec_steps": len(accepted),
                    "num_accepted_draft_tokens": sum(accepted),
                    "num_draft_tokens": sum(drafted),
                    "num_spec_tokens": self.k,
                    "acceptance_histogram": [accepted.count(n) for n in range(self.k + 1)],
                    "per_step_accepted": accepted,
                    "per_step_drafted": drafted,
                }
        usage = {"prompt_tokens": n_prompt, "completion_tokens": n_tokens, "total_tokens": n_prompt + n_tokens}
        return {"tokens": tokens, "reason": reason, "usage": usage, "metrics": metrics}

    def page(self) -> str:
        """/metrics in Prometheus text, names and labels as vLLM 0.32 writes them; no draft counters at K=0."""
        with self.lock:
            total, running, positions = dict(self.total), self.running, list(self.per_position)
        label = f'engine="0",model_name="{MODEL}"'
        lines: list[str] = []

        def family(name: str, kind: str, samples: dict[str, float]) -> None:
            lines.extend((f"# HELP {name} Stand-in.", f"# TYPE {name} {kind}"))
            lines.extend(f"{name}{{{label}{extra}}} {value:.1f}" for extra, value in samples.items())

        if self.reported_k:
            family("vllm:spec_decode_num_drafts_total", "counter", {"": total["drafts"]})
            family("vllm:spec_decode_num_drafts_created", "gauge", {"": 1.7e9})
            family("vllm:spec_decode_num_draft_tokens_total", "counter", {"": total["drafted"]})
            family("vllm:spec_decode_num_accepted_tokens_total", "counter", {"": total["accepted"]})
            by_position = {f',position="{p}"': positions[p] for p in range(self.reported_k)}
            family("vllm:spec_decode_num_accepted_tokens_per_pos_total", "counter", by_position)
        family("vllm:num_requests_running", "gauge", {"": running})
        family("vllm:prefix_cache_queries_total", "counter", {"": 0})
        family("vllm:prefix_cache_hits_total", "counter", {"": 0})
        family("vllm:num_preemptions_total", "counter", {"": 0})
        family("vllm:prompt_tokens_total", "counter", {"": total["prompt"]})
        family("vllm:generation_tokens_total", "counter", {"": total["generated"]})
        by_reason = {f',finished_reason="{reason}"': total[reason] for reason in ("stop", "length")}
        family("vllm:request_success_total", "counter", by_reason)
        lines += [
            "# HELP vllm:iteration_tokens_total Stand-in.",
            "# TYPE vllm:iteration_tokens_total histogram",
            f'vllm:iteration_tokens_total_bucket{{{label},le="+Inf"}} {total["iterations"]:.1f}',
            f"vllm:iteration_tokens_total_count{{{label}}} {total['iterations']:.1f}",
            f"vllm:iteration_tokens_total_sum{{{label}}} {total['generated'] + total['prompt']:.1f}",
        ]
        return "\n".join(lines) + "\n"
