"""Remake the tiny target and drafter of the demo on a CPU: `python data/models/train.py [--quick] [--out DIR]`.

Four stages, each of which reads what the one before it wrote under --out:

tokenizer  byte-level BPE of Python's standard library -> tokenizer/, tokens.npy, corpus.json
target     Llama, 8 layers, hidden 384                 -> target/
draft      Llama, 1 layer, hidden 128                  -> draft-base/
distil     draft-base trained on target's greedy text  -> draft/

Everything is counted in steps, never in seconds, and seeded: the same seed, thread count, library versions and kind of
CPU give the same bytes. Beside each model's weights lies a training.json with what decided them and the losses.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # before tokenizers is loaded

import numpy as np
import tokenizers
import torch
import transformers
from corpus import EOS_ID, MAX_LENGTH, VOCAB_SIZE, encode, read_corpus, train_tokenizer
from job import Job, Schedule, Sizes, parse
from torch.nn.functional import cross_entropy, kl_div
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

SHAPES = {  # hidden, layers, heads, intermediate
    "target": (384, 8, 6, 1024),
    "draft": (128, 1, 2, 352),
}
NEEDS = {  # what a stage reads from --out, and the stage that writes it
    "target": {"corpus.json": "tokenizer"},
    "draft": {"corpus.json": "tokenizer"},
    "distil": {"target/training.json": "target", "draft-base/training.json": "draft"},
}
LogEntry = tuple[int, float]  # step (from 1), training loss


def settings(job: Job) -> dict[str, object]:
    """What decides the weights, for training.json: no path, no time of day."""
    return {
        "seed": job.seed,
        "threads": job.threads,
        "precision": job.precision,
        "quick": job.quick,
        "sizes": asdict(job.sizes),
        "corpus": json.loads((job.out / "corpus.json").read_text()),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "tokenizers": tokenizers.__version__,
            "numpy": np.__version__,
        },
        "cpu": {"machine": platform.machine(), "capability": torch.backends.cpu.get_cpu_capability()},
    }


def lower_precision(job: Job) -> torch.autocast:
    """Matrix products of the forward pass in bfloat16 where asked; weights and optimiser stay float32."""
    return torch.autocast("cpu", dtype=torch.bfloat16, enabled=job.precision == "bfloat16")


def make_tokenizer(job: Job) -> None:
    """Stage tokenizer: choose the corpus, print its hash, train the BPE, encode everything once."""
    corpus = read_corpus(max_files=job.sizes.max_files)
    print(f"corpus: {len(corpus.texts)} files, {corpus.n_bytes} bytes, sha256 {corpus.sha256}", flush=True)
    tokenizer = train_tokenizer(corpus)
    ids = encode(corpus, tokenizer)
    tokenizer.save_pretrained(job.out / "tokenizer")
    np.save(job.out / "tokens.npy", ids)
    write_json(job.out / "corpus.json", corpus.describe() | {"tokens": len(ids)})
    print(f"tokenizer: {len(tokenizer)} entries, {len(ids)} tokens", flush=True)


def load_tokens(job: Job) -> tuple[torch.Tensor, torch.Tensor]:
    """Training and validation token ids: the corpus's end is held out."""
    ids = torch.from_numpy(np.load(job.out / "tokens.npy"))
    return ids[: -job.sizes.validation_tokens], ids[-job.sizes.validation_tokens :]


def draw_rows(ids: torch.Tensor, rows: int, length: int, generator: torch.Generator) -> torch.Tensor:
    """`rows` windows of `length` tokens at random starts; shape (rows, length)."""
    starts = torch.randint(0, len(ids) - length, (rows,), generator=generator)
    return torch.stack([ids[start : start + length] for start in starts.tolist()])


def new_model(kind: str) -> LlamaForCausalLM:
    """A model of SHAPES with random weights."""
    hidden, layers, heads, intermediate = SHAPES[kind]
    config = LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=64,
        max_position_embeddings=MAX_LENGTH,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=EOS_ID,
        pad_token_id=EOS_ID,
        rms_norm_eps=1e-5,
    )
    return LlamaForCausalLM(config)


def load_model(folder: Path) -> LlamaForCausalLM:
    """A saved model, computed in float32."""
    return LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)


def optimise(
    name: str, model: LlamaForCausalLM, schedule: Schedule, step_loss: Callable[[], torch.Tensor]
) -> list[LogEntry]:
    """Take `schedule.steps` AdamW steps on `step_loss`; returns about twenty losses, the last step's among them."""
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=schedule.peak, betas=(0.9, 0.95), weight_decay=schedule.weight_decay
    )
    model.train()
    started, every, log = time.monotonic(), max(1, schedule.steps // 20), []
    for step in range(schedule.steps):
        for group in optimiser.param_groups:
            group["lr"] = schedule.rate(step)
        loss = step_loss()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        if (step + 1) % every == 0 or step + 1 == schedule.steps:
            log.append((step + 1, round(loss.item(), 6)))
            seconds = time.monotonic() - started
            print(f"{name}: step {step + 1}/{schedule.steps} loss {loss.item():.3f} ({seconds:.0f} s)", flush=True)
    model.eval()
    return log


@torch.no_grad()
def validation_loss(model: LlamaForCausalLM, ids: torch.Tensor, sizes: Sizes) -> float:
    """Mean next-token cross-entropy, in nats, over the first rows of the held-out tokens, in float32."""
    rows = ids[: sizes.validation_rows * sizes.length].view(-1, sizes.length)
    losses = [model(input_ids=part, labels=part).loss.item() for part in rows.split(sizes.batch)]
    return round(sum(losses) / len(losses), 6)


def train_model(job: Job, kind: str, folder: str) -> None:
    """Stages target and draft: next-token training on the corpus."""
    torch.manual_seed(job.stage_seed(kind))
    generator = torch.Generator().manual_seed(job.stage_seed(kind))
    train_ids, validation_ids = load_tokens(job)
    model = new_model(kind)

    def step_loss() -> torch.Tensor:
        rows = draw_rows(train_ids, job.sizes.batch, job.sizes.length, generator)
        with lower_precision(job):
            return model(input_ids=rows, labels=rows).loss

    schedule = Schedule(job.steps[kind], 2e-3 if kind == "target" else 3e-3, warmup=40, floor=0.05, weight_decay=0.05)
    log = optimise(kind, model, schedule, step_loss)
    stage = {"schedule": asdict(schedule), "validation_loss": validation_loss(model, validation_ids, job.sizes)}
    print(f"{kind}: validation loss {stage['validation_loss']}", flush=True)
    save(job, model, folder, {kind: stage | {"losses": log}})


@torch.no_grad()
def target_text(job: Job, target: LlamaForCausalLM, generator: torch.Generator) -> torch.Tensor:
    """Target's greedy continuations of corpus excerpts; shape (batches * rows, prompt + new)."""
    train_ids, _ = load_tokens(job)
    sizes, parts = job.sizes, []
    for batch in range(sizes.distil_batches):
        prompts = draw_rows(train_ids, sizes.distil_rows, sizes.distil_prompt, generator)
        limits = {"max_new_tokens": sizes.distil_new, "min_new_tokens": sizes.distil_new}
        parts.append(target.generate(prompts, attention_mask=torch.ones_like(prompts), do_sample=False, **limits))
        print(f"distil: target's text, batch {batch + 1}/{sizes.distil_batches}", flush=True)
    return torch.cat(parts)


def distil(job: Job) -> None:
    """Stage distil: cross-entropy on target's greedy tokens plus half the divergence from target's distribution."""
    torch.manual_seed(job.stage_seed("distil"))
    generator = torch.Generator().manual_seed(job.stage_seed("distil"))
    target, draft = load_model(job.out / "target").eval(), load_model(job.out / "draft-base")
    texts = target_text(job, target, generator)
    first = job.sizes.distil_prompt
    agreement: list[float] = []  # share of the last step's tokens on which both models' first choice is the same

    def step_loss() -> torch.Tensor:
        rows = texts[torch.randint(0, len(texts), (job.sizes.distil_batch,), generator=generator)]
        wanted = rows[:, first:].reshape(-1)
        with lower_precision(job):
            with torch.no_grad():
                teacher = target(input_ids=rows).logits[:, first - 1 : -1].flatten(0, 1).float().log_softmax(-1)
            logits = draft(input_ids=rows).logits[:, first - 1 : -1].flatten(0, 1).float()
        agreement[:] = [(logits.argmax(-1) == wanted).float().mean().item()]
        divergence = kl_div(logits.log_softmax(-1), teacher, log_target=True, reduction="batchmean")
        return cross_entropy(logits, wanted) + 0.5 * divergence

    schedule = Schedule(job.steps["distil"], 2e-3, warmup=20, floor=0.03, weight_decay=0.01)
    log = optimise("distil", draft, schedule, step_loss)
    print(f"distil: agreement with target on the last step's tokens {agreement[0]:.3f}", flush=True)
    earlier = json.loads((job.out / "draft-base" / "training.json").read_text())["stages"]
    stage = {"schedule": asdict(schedule), "agreement": round(agreement[0], 6), "losses": log}
    save(job, draft, "draft", earlier | {"distil": stage})


def save(job: Job, model: LlamaForCausalLM, folder: str, stages: dict[str, object]) -> None:
    """Write weights (bfloat16), tokenizer and training.json."""
    model.to(torch.bfloat16).save_pretrained(job.out / folder)
    AutoTokenizer.from_pretrained(job.out / "tokenizer", local_files_only=True).save_pretrained(job.out / folder)
    write_json(job.out / folder / "training.json", settings(job) | {"stages": stages})


def write_json(path: Path, value: dict[str, object]) -> None:
    """Indented JSON with a newline at its end."""
    path.write_text(json.dumps(value, indent=1) + "\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the asked stages; 2 if one lacks what an earlier one writes."""
    job = parse(argv)
    torch.set_num_threads(job.threads)
    torch.use_deterministic_algorithms(True)
    job.out.mkdir(parents=True, exist_ok=True)
    runners: dict[str, Callable[[], None]] = {
        "tokenizer": lambda: make_tokenizer(job),
        "target": lambda: train_model(job, "target", "target"),
        "draft": lambda: train_model(job, "draft", "draft-base"),
        "distil": lambda: distil(job),
    }
    for stage in job.stages:
        for name, earlier in NEEDS.get(stage, {}).items():
            if not (job.out / name).is_file():
                print(f"stage {stage} needs {name} in {job.out}: run stage {earlier} first", file=sys.stderr)
                return 2
        runners[stage]()
    print(f"done: {job.out}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
