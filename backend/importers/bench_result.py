"""The shape of a `bench serve` result: which keys are read, with their types."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, NonNegativeFloat, NonNegativeInt, PositiveInt


class BenchResult(BaseModel):
    """The keys that are read; None: the file does not hold them. Arrays have one entry a request, in order sent."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, allow_inf_nan=False)

    model_id: str
    tokenizer_id: str | None = None
    backend: str | None = None
    date: str | None = None
    label: str | None = None
    request_rate: float | str | None = None
    max_concurrency: PositiveInt | None = None
    num_prompts: NonNegativeInt
    completed: NonNegativeInt
    failed: NonNegativeInt | None = None
    total_input_tokens: NonNegativeInt
    total_output_tokens: NonNegativeInt
    output_throughput: NonNegativeFloat | None = None
    mean_ttft_ms: NonNegativeFloat | None = None
    mean_itl_ms: NonNegativeFloat | None = None
    latencies: list[NonNegativeFloat] | None = None
    input_lens: list[NonNegativeInt] | None = None
    output_lens: list[NonNegativeInt] | None = None
    ttfts: list[NonNegativeFloat] | None = None
    itls: list[list[NonNegativeFloat]] | None = None
    errors: list[str] | None = None
    spec_decode_num_drafts: NonNegativeInt | None = None
    spec_decode_draft_tokens: NonNegativeInt | None = None
    spec_decode_accepted_tokens: NonNegativeInt | None = None
    spec_decode_acceptance_length: NonNegativeFloat | None = None
    spec_decode_per_position_acceptance_rates: list[NonNegativeFloat] | None = None

    @property
    def tells_drafts(self) -> bool:
        """Whether anything about speculation is in it."""
        return any(
            value is not None
            for value in (
                self.spec_decode_num_drafts,
                self.spec_decode_draft_tokens,
                self.spec_decode_per_position_acceptance_rates,
            )
        )
