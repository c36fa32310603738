"""The stages that the probe times: what each contains, and which part of the cycle it belongs to.

Stages are exclusive (none contains time of another), so the parts add up to what the probe saw of a cycle. Part
"draft" is the proposer, "verify" the target's forward with its logits, "sample" turning logits into tokens, "host"
everything that is neither: the gaps, each named by what runs in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Part = Literal["draft", "verify", "sample", "host"]
PARTS: tuple[Part, ...] = ("draft", "verify", "sample", "host")

STAGES: Mapping[str, tuple[Part, str]] = {
    "draft_forward": ("draft", "the drafter's forward pass, by draft position"),
    "draft_logits": ("draft", "the drafter's logits, by draft position"),
    "draft_sampling": ("draft", "choosing the drafted token from the drafter's logits, by draft position"),
    "draft_attention_metadata": ("draft", "attention metadata for the drafter, by draft position"),
    "draft_prepare": ("draft", "inputs of the proposer: next tokens, rejected tokens, positions, copies of drafts"),
    "draft_context": ("draft", "the target's hidden states into the drafter: combining them, context keys and values"),
    "draft_markov": ("draft", "sequential Markov sampling over the backbone's hidden states (dspark)"),
    "draft_lookup": ("draft", "looking up n-grams"),
    "draft_inputs": ("draft", "the proposer's own loop: each draft into the next position's inputs, slices, stacking"),
    "draft_collective": ("draft", "tensor-parallel exchange inside the drafter, waiting for other ranks included"),
    "verify_forward": ("verify", "the target's forward pass over the last token and K drafts"),
    "target_logits": ("verify", "the target's logits"),
    "verify_collective": ("verify", "tensor-parallel exchange inside the target, waiting for other ranks included"),
    "rejection_sampling": ("sample", "accepting and rejecting drafts"),
    "target_sampling": ("sample", "sampling around the rejection; at K=0 the plain sampler"),
    "engine_loop": ("host", "the engine core's loop and the executor: handing steps over, queueing outputs"),
    "engine_wait": ("host", "waiting for the engine core in another process: its scheduler, its outputs, messages"),
    "worker_answer": ("host", "handing a worker's outputs to the engine core"),
    "input_queue": ("host", "the engine core's input queue"),
    "schedule": ("host", "the scheduler"),
    "output_processing": ("host", "the scheduler taking in the step's tokens"),
    "runner_loop": ("host", "the model runner's own code around its stages"),
    "update_states": ("host", "the runner's state of requests"),
    "prepare_inputs": ("host", "inputs of the target: positions, lengths, indices of the tokens to sample"),
    "batch_indices": ("host", "which token belongs to which request of the batch"),
    "input_copies": ("host", "host buffers to the device"),
    "input_ids": ("host", "token ids of the target's inputs, the drafts among them"),
    "slot_mapping": ("host", "where keys and values go: block tables and slot mapping"),
    "spec_indices": ("host", "which of the target's outputs belong to which draft"),
    "attention_metadata": ("host", "attention metadata for the target"),
    "bookkeeping": ("host", "taking the step's tokens to the host and into the runner's state"),
    "collective": ("host", "tensor-parallel exchange outside target and drafter"),
}
# Made of the parts above one draft position at a time: what position i cost.
BY_POSITION = ("draft_forward", "draft_logits", "draft_sampling", "draft_attention_metadata")


def part_of(stage: str) -> Part:
    """The part of a stage; one that this version does not know is the host's."""
    return STAGES[stage][0] if stage in STAGES else "host"


def contains(stage: str) -> str:
    """What runs in a stage."""
    return STAGES[stage][1] if stage in STAGES else "not known to this version"


def stages_of(part: Part) -> list[str]:
    """The stages of a part."""
    return [stage for stage, (of, _) in STAGES.items() if of == part]
