"""Which functions of vLLM are timed, and as what stage: a table, read by the probe and by the contract test.

Stages are exclusive leaves; `backend/analysis/stages.py` says what each contains and which total it belongs to.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Hook:
    """A function of vLLM that is timed. `owner`: how it is reached from the worker, or "module:Class".

    `source`: "file:Class" that defines it, for the contract test; empty: the class is the model's own.
    `by_position`: its calls within one proposal are draft positions 0, 1, ... `runner`: "v1", "v2", or "" for both.
    """

    owner: str
    attribute: str
    stage: str
    source: str = ""
    by_position: bool = False
    runner: str = ""

    @property
    def required(self) -> bool:
        """Whether its absence means that vLLM changed, not merely that this server has no such part."""
        return self.owner in ("runner", "worker") or ":" in self.owner or self.attribute == "propose"

    @property
    def every_step(self) -> bool:
        """Whether it is recorded in the unrecorded steps of mode "alternate" too: they end there, the loop contains
        that end, and the target's forward tells a step from the engine's look at a finished request.
        """
        return self.attribute in STEP_ENDS or self.stage in ("engine_loop", "verify_forward")


_CORE = "vllm.v1.engine.core:EngineCoreProc"
_SCHEDULER = "vllm.v1.core.sched.scheduler:Scheduler"
_QUEUE = "vllm.distributed.device_communicators.shm_broadcast:MessageQueue"
_WORKER = "vllm.v1.executor.multiproc_executor:WorkerProc"
_GROUP = "vllm.distributed.parallel_state:GroupCoordinator"


def _class(owner: str, attribute: str, stage: str) -> Hook:
    module, _, name = owner.partition(":")
    return Hook(owner, attribute, stage, f"{module.replace('.', '/')}.py:{name}")


def _v1(owner: str, attribute: str, stage: str, source: str = "", by_position: bool = False) -> Hook:
    sources = {
        "runner": "vllm/v1/worker/gpu_model_runner.py:GPUModelRunner",
        "drafter": "vllm/v1/spec_decode/llm_base_proposer.py:SpecDecodeBaseProposer",
    }
    return Hook(owner, attribute, stage, source or sources[owner], by_position, "v1")


def _v2(owner: str, attribute: str, stage: str, source: str = "") -> Hook:
    sources = {
        "runner": "vllm/v1/worker/gpu/model_runner.py:GPUModelRunner",
        "drafter": "vllm/v1/worker/gpu/spec_decode/dflash/speculator.py:DFlashSpeculator",
    }
    return Hook(owner, attribute, stage, source or sources[owner], False, "v2")


HOOKS = (
    # The engine core, where it shares the worker's process; elsewhere the worker waits for it.
    _class(_CORE, "_process_engine_step", "engine_loop"),
    _class(_CORE, "_process_input_queue", "input_queue"),
    _class(_SCHEDULER, "schedule", "schedule"),
    _class(_SCHEDULER, "update_from_output", "output_processing"),
    _class(_QUEUE, "dequeue", "engine_wait"),
    _class(_WORKER, "handle_output", "worker_answer"),
    _class(_GROUP, "_all_reduce_out_place", "collective"),
    _class(_GROUP, "all_gather", "collective"),
    _class(_GROUP, "gather", "collective"),
    # Models and drafters, whatever the runner. Their functions are their own: a drafter has those of its kind.
    Hook("model", "compute_logits", "target_logits"),
    Hook("drafter.model", "combine_hidden_states", "draft_context"),
    Hook("drafter.model", "precompute_and_store_context_kv", "draft_context"),
    Hook("drafter.model", "forward", "draft_forward", by_position=True),
    Hook("drafter.model", "compute_logits", "draft_logits", by_position=True),
    # V1 runner: the CPU, and the GPU for most drafters.
    _v1("runner", "execute_model", "runner_loop"),
    _v1("runner", "_update_states", "update_states"),
    _v1("runner", "_prepare_inputs", "prepare_inputs"),
    _v1("runner", "_prepare_input_ids", "input_ids"),
    _v1("runner", "_get_cumsum_and_arange", "batch_indices"),
    _v1("runner", "_compute_prev_positions", "batch_indices"),
    _class("vllm.v1.utils:CpuGpuBuffer", "copy_to_gpu", "input_copies"),
    _v1("block_table", "commit_block_table", "slot_mapping", "vllm/v1/worker/block_table.py:MultiGroupBlockTable"),
    _v1("block_table", "compute_slot_mapping", "slot_mapping", "vllm/v1/worker/block_table.py:MultiGroupBlockTable"),
    _v1("runner", "_calc_spec_decode_metadata", "spec_indices"),
    _v1("runner", "_build_attention_metadata", "attention_metadata"),
    _v1("runner", "_model_forward", "verify_forward"),
    _v1("runner", "sample_tokens", "runner_loop"),
    _v1("runner", "_sample", "target_sampling"),
    _v1("rejection_sampler", "forward", "rejection_sampling", "vllm/v1/sample/rejection_sampler.py:RejectionSampler"),
    _v1("runner", "_update_states_after_model_execute", "bookkeeping"),
    _v1("runner", "_bookkeeping_sync", "bookkeeping"),
    _v1("runner", "propose_draft_token_ids", "draft_prepare"),
    _v1("runner", "_copy_draft_token_ids_to_cpu", "draft_prepare"),
    _v1("drafter", "prepare_next_token_ids_padded", "draft_prepare"),
    _v1("drafter", "prepare_inputs_padded", "draft_prepare"),
    _v1("drafter", "propose", "draft_inputs"),
    _v1("drafter", "set_inputs_first_pass", "draft_prepare"),
    _v1("drafter", "build_model_inputs_first_pass", "draft_prepare"),
    _v1("drafter", "build_per_group_and_layer_attn_metadata", "draft_attention_metadata", by_position=True),
    _v1("drafter", "_update_positions_dependent_metadata", "draft_prepare"),
    _v1("drafter", "_sample_draft_tokens", "draft_sampling", by_position=True),
    _v1("drafter", "batch_propose", "draft_lookup", "vllm/v1/spec_decode/ngram_proposer.py:NgramProposer"),
    # V2 runner (GPU; dspark only there). Under full CUDA graphs the inside of a proposal never runs as Python.
    _v2("runner", "execute_model", "runner_loop"),
    _v2("runner", "prepare_inputs", "prepare_inputs"),
    _v2("runner", "prepare_attn", "attention_metadata"),
    Hook("model", "forward", "verify_forward", runner="v2"),
    _v2("graphs", "run_fullgraph", "verify_forward", "vllm/v1/worker/gpu/cudagraph_utils.py:CudaGraphManager"),
    _v2("runner", "sample_tokens", "runner_loop"),
    _v2("runner", "sample", "target_sampling"),
    _v2("runner", "postprocess_sampled", "bookkeeping"),
    _v2("drafter", "propose", "draft_inputs"),
    _v2("drafter", "_precompute_context_kv", "draft_context"),
    _v2("drafter", "_generate_draft", "draft_inputs"),
    _v2(
        "drafter",
        "_sample_sequential",
        "draft_markov",
        "vllm/v1/worker/gpu/spec_decode/dspark/speculator.py:DSparkSpeculator",
    ),
)
# Pseudo stages of mode "alternate": a whole step, by whether its stages were recorded.
STEP_TOTALS = ("step_unprobed", "step_probed")
# Leaving one of these ends a step; the first that ran counts. Both lie next to where the engine stamps its outputs.
STEP_ENDS = ("update_from_output", "sample_tokens")
