"""Made models of a few KB: every architecture and weight format, with random weights."""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize

from kernels.bytelevel import _ALPHABET

DIM, HIDDEN, HEADS, KV_HEADS, LAYERS, VOCAB, CONTEXT = 64, 96, 4, 2, 2, 300, 128
K_QUANTS = {"Q4_K": 144, "Q5_K": 176, "Q6_K": 210}  # bytes of a block of 256
Floats = npt.NDArray[np.float32]


def vocabulary() -> list[str]:
    """256 bytes, some merges, control tokens last."""
    tokens = list(_ALPHABET)
    tokens += ["Ġt", "he", "Ġthe", "in", "er"]
    tokens += [f"<unused{i}>" for i in range(VOCAB - len(tokens) - 2)]
    return [*tokens, "<|im_start|>", "<|im_end|>"]


MERGES = ["Ġ t", "h e", "Ġt he", "i n", "e r"]


def shapes(arch: str, *, dim: int = DIM, hidden: int = HIDDEN) -> dict[str, tuple[int, ...]]:
    head = dim // HEADS
    found: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (VOCAB, dim),
        "output_norm.weight": (dim,),
    }
    for i in range(LAYERS):
        layer: dict[str, tuple[int, ...]] = {
            "attn_norm.weight": (dim,),
            "attn_q.weight": (dim, dim),
            "attn_k.weight": (KV_HEADS * head, dim),
            "attn_v.weight": (KV_HEADS * head, dim),
            "attn_output.weight": (dim, dim),
            "ffn_norm.weight": (dim,),
            "ffn_gate.weight": (hidden, dim),
            "ffn_up.weight": (hidden, dim),
            "ffn_down.weight": (dim, hidden),
        }
        if arch == "qwen2":
            layer |= {
                "attn_q.bias": (dim,),
                "attn_k.bias": (KV_HEADS * head,),
                "attn_v.bias": (KV_HEADS * head,),
            }
        if arch == "qwen3":
            layer |= {"attn_q_norm.weight": (head,), "attn_k_norm.weight": (head,)}
        found |= {f"blk.{i}.{name}": shape for name, shape in layer.items()}
    return found


def values(shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
    if len(shape) == 1:
        return (1 + 0.1 * rng.standard_normal(shape)).astype(np.float32)
    return (rng.standard_normal(shape) / np.sqrt(shape[1])).astype(np.float32)


def encoded(matrix: Floats, kind: str, rng: np.random.Generator) -> npt.NDArray[Any]:
    """A matrix's bytes in a format; K-quants are random blocks with small finite scales."""
    if kind in K_QUANTS:
        size = K_QUANTS[kind]
        blocks = rng.integers(0, 256, (matrix.size // 256, size), dtype=np.uint8)
        at = [208] if kind == "Q6_K" else [0, 2]
        for place in at:
            scale = (rng.random(len(blocks)) * 2e-3).astype(np.float16)
            blocks[:, place : place + 2] = scale[:, None].view(np.uint8)
        return blocks.reshape(matrix.shape[0], -1)
    return np.asarray(quantize(matrix, GGMLQuantizationType[kind]))


def write_gguf(
    path: Path, arch: str = "llama", kind: str = "F32", *, dim: int = DIM, hidden: int = HIDDEN
) -> Path:
    """A complete model with its vocabulary; matrices in `kind`, vectors in F32."""
    rng = np.random.default_rng(7)
    writer = GGUFWriter(path, arch)
    writer.add_name("tiny")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(dim)
    writer.add_feed_forward_length(hidden)
    writer.add_block_count(LAYERS)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10_000.0)
    tokens = vocabulary()
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if t.startswith("<|") else 1 for t in tokens])
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(VOCAB - 2)
    writer.add_eos_token_id(VOCAB - 1)
    for name, shape in shapes(arch, dim=dim, hidden=hidden).items():
        tensor = values(shape, rng)
        if len(shape) == 1 or kind == "F32":
            writer.add_tensor(name, tensor)
        else:
            raw = encoded(tensor, kind, rng)
            writer.add_tensor(name, raw, raw_dtype=GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


_OUTER = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
_INNER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def write_safetensors(folder: Path, arch: str = "llama") -> Path:
    """A folder as Hugging Face has them: config, tokenizer, bf16 weights."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(7)
    header: dict[str, Any] = {}
    body = b""
    for name, shape in shapes(arch).items():
        part, kind = name.split(".")[-2:]
        prefix = f"model.layers.{name.split('.')[1]}." if name.startswith("blk.") else ""
        theirs = f"{prefix}{_INNER[part] if prefix else _OUTER[part]}.{kind}"
        dtype = "F32" if len(shape) == 1 else "BF16"
        raw = encoded(values(shape, rng), dtype, rng).tobytes()
        header[theirs] = {
            "dtype": dtype, "shape": list(shape), "data_offsets": [len(body), len(body) + len(raw)],
        }  # fmt: skip
        body += raw
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + body)
    (folder / "config.json").write_text(json.dumps({
        "model_type": arch, "vocab_size": VOCAB, "hidden_size": DIM, "intermediate_size": HIDDEN,
        "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
        "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "tie_word_embeddings": True, "eos_token_id": VOCAB - 1,
    }))  # fmt: skip
    ids = {token: i for i, token in enumerate(vocabulary())}
    special = [
        {"id": ids[t], "content": t, "special": True, "normalized": False, "single_word": False,
         "lstrip": False, "rstrip": False} for t in ("<|im_start|>", "<|im_end|>")
    ]  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special,
        "normalizer": None, "post_processor": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True,
                          "trim_offsets": True},
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                    "use_regex": True},
        "model": {"type": "BPE", "vocab": ids, "merges": MERGES},
    }))  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>"}))
    return folder
