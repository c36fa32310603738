"""Write a random one-layer dflash head for the bundled target: it drafts nonsense, at the cost of a real block drafter.

Run with the Python of .venv-vllm: `python random_dflash.py FOLDER`.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

HIDDEN, VOCABULARY, INTERMEDIATE, HEADS, HEAD = 384, 2048, 1024, 6, 64
CONFIG = {
    "architectures": ["DFlashDraftModel"],
    "model_type": "qwen3",
    "num_hidden_layers": 1,
    "block_size": 7,
    "num_target_layers": 8,
    "dflash_config": {"mask_token_id": 2, "target_layer_ids": [1, 6]},
    "hidden_size": HIDDEN,
    "intermediate_size": INTERMEDIATE,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "head_dim": HEAD,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "torch_dtype": "bfloat16",
    "rope_theta": 10000.0,
    "attention_bias": False,
}


def main(folder: Path) -> None:
    """Config and weights, the same every time."""
    generator = torch.Generator().manual_seed(0)

    def matrix(rows: int, columns: int) -> torch.Tensor:
        return (torch.randn(rows, columns, generator=generator) * 0.02).to(torch.bfloat16)

    def ones(size: int) -> torch.Tensor:
        return torch.ones(size, dtype=torch.bfloat16)

    layer = "layers.0."
    weights = {
        "fc.weight": matrix(HIDDEN, 2 * HIDDEN),
        **{f"{layer}self_attn.{name}_proj.weight": matrix(HEADS * HEAD, HIDDEN) for name in "qkv"},
        f"{layer}self_attn.o_proj.weight": matrix(HIDDEN, HEADS * HEAD),
        f"{layer}self_attn.q_norm.weight": ones(HEAD),
        f"{layer}self_attn.k_norm.weight": ones(HEAD),
        f"{layer}mlp.gate_proj.weight": matrix(INTERMEDIATE, HIDDEN),
        f"{layer}mlp.up_proj.weight": matrix(INTERMEDIATE, HIDDEN),
        f"{layer}mlp.down_proj.weight": matrix(HIDDEN, INTERMEDIATE),
        f"{layer}input_layernorm.weight": ones(HIDDEN),
        f"{layer}post_attention_layernorm.weight": ones(HIDDEN),
        "hidden_norm.weight": ones(HIDDEN),
        "norm.weight": ones(HIDDEN),
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=1))
    save_file(weights, str(folder / "model.safetensors"), metadata={"format": "pt"})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
