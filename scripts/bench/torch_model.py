"""The models of docs/job-spec.md's presets in plain PyTorch, for the peers of our benchmarks and for comparisons.

Parameters have DeepShard's names and layouts (`ds-convert export` writes them): linear weights [out, in], queries, keys
and values in one matrix, gate and up in one. No dropout.
"""
import dataclasses

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


@dataclasses.dataclass
class Shape:
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocabulary: int
    llama: bool = False  # RMSNorm, RoPE, SwiGLU, no biases; else LayerNorm, learned positions, GELU by tanh, biases
    tied_head: bool = True
    qkv_bias: bool = True
    rope_theta: float = 10000.0
    norm_eps: float = 1e-5


SHAPES = {
    "gpt2-124m": Shape(12, 768, 12, 12, 3072, 50257),
    "gpt2-1.5b": Shape(48, 1600, 25, 25, 6400, 50257),
    "llama-1b": Shape(16, 2048, 32, 8, 8192, 128256, llama=True, qkv_bias=False, rope_theta=5e5),
    "llama-8b": Shape(32, 4096, 32, 8, 14336, 128256, llama=True, tied_head=False, qkv_bias=False, rope_theta=5e5),
    "qwen2.5-1.5b": Shape(28, 1536, 12, 2, 8960, 151936, llama=True, rope_theta=1e6, norm_eps=1e-6),
}


def turned(x, cos, sin):
    """RoPE: element i turns with element i + size / 2."""
    first, second = x.chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


class Attention(nn.Module):
    def __init__(self, s, norm):
        super().__init__()
        self.shape, self.size = s, s.hidden // s.heads
        self.norm = norm()
        self.qkv = nn.Linear(s.hidden, (s.heads + 2 * s.kv_heads) * self.size, bias=s.qkv_bias)
        self.proj = nn.Linear(s.hidden, s.hidden, bias=not s.llama)

    def forward(self, x, cos, sin):
        s, (batch, tokens, hidden) = self.shape, x.shape
        widths = [heads * self.size for heads in (s.heads, s.kv_heads, s.kv_heads)]
        q, k, v = (part.view(batch, tokens, -1, self.size).transpose(1, 2)
                   for part in self.qkv(self.norm(x)).split(widths, -1))
        if s.llama:
            q, k = turned(q, cos, sin), turned(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=s.heads != s.kv_heads)
        return x + self.proj(y.transpose(1, 2).reshape(batch, tokens, hidden))


class Mlp(nn.Module):
    def __init__(self, s, norm):
        super().__init__()
        self.norm = norm()
        if s.llama:
            self.gate_up = nn.Linear(s.hidden, 2 * s.ffn, bias=False)
        else:
            self.up = nn.Linear(s.hidden, s.ffn)
        self.down = nn.Linear(s.ffn, s.hidden, bias=not s.llama)

    def forward(self, x):
        h = self.norm(x)
        if hasattr(self, "up"):
            return x + self.down(F.gelu(self.up(h), approximate="tanh"))
        gate, up = self.gate_up(h).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Block(nn.Module):
    def __init__(self, s, norm):
        super().__init__()
        self.attention, self.mlp = Attention(s, norm), Mlp(s, norm)

    def forward(self, x, cos, sin):
        return self.mlp(self.attention(x, cos, sin))


class Decoder(nn.Module):
    """forward(ids [batch, tokens], targets) -> the mean loss, of fp32 logits."""

    def __init__(self, s, max_positions, recompute=False):
        super().__init__()
        self.shape, self.recompute = s, recompute

        def norm():
            return (nn.RMSNorm if s.llama else nn.LayerNorm)(s.hidden, eps=s.norm_eps)

        self.embedding = nn.ModuleDict({"tokens": nn.Embedding(s.vocabulary, s.hidden)})
        if not s.llama:
            self.embedding["positions"] = nn.Embedding(max_positions, s.hidden)
        self.layers = nn.ModuleList(Block(s, norm) for _ in range(s.layers))
        self.head = nn.ModuleDict({"norm": norm()})
        if not s.tied_head:
            self.head_weight = nn.Parameter(torch.empty(s.vocabulary, s.hidden))
        size = s.hidden // s.heads
        self.angles_of = (max_positions, size)
        self.register_buffer("cos", torch.empty(max_positions, size // 2), persistent=False)
        self.register_buffer("sin", torch.empty(max_positions, size // 2), persistent=False)

    def start(self):
        """Fills what the constructor left open: random weights (normal, 0.02; into the residual stream smaller by the
        root of twice the layers), zero biases, norms at one, RoPE's tables."""
        tokens, size = self.angles_of
        device = self.cos.device
        with torch.no_grad():
            frequencies = self.shape.rope_theta ** (-torch.arange(0, size, 2, device=device, dtype=torch.float64) / size)
            angles = torch.outer(torch.arange(tokens, device=device, dtype=torch.float64), frequencies)
            self.cos.copy_(angles.cos())
            self.sin.copy_(angles.sin())
            for name, p in self.named_parameters():
                if p.dim() == 2:
                    residual = name.endswith(("proj.weight", "down.weight"))
                    nn.init.normal_(p, std=0.02 / (2 * self.shape.layers) ** 0.5 if residual else 0.02)
                elif name.endswith("bias"):
                    nn.init.zeros_(p)
                else:
                    nn.init.ones_(p)
        return self

    def load(self, tensors):
        """Parameters from tensors by DeepShard's names; every one must be there."""
        mine = {("head.weight" if n == "head_weight" else n): p for n, p in self.named_parameters()}
        if mine.keys() != tensors.keys():
            raise SystemExit(f"error: other parameters: {sorted(mine.keys() ^ tensors.keys())}")
        with torch.no_grad():
            for name, p in mine.items():
                p.copy_(tensors[name])

    def forward(self, ids, targets):
        x = self.embedding["tokens"](ids)
        tokens = ids.shape[1]
        if not self.shape.llama:
            x = x + self.embedding["positions"].weight[:tokens]
        cos, sin = self.cos[:tokens].to(x.dtype), self.sin[:tokens].to(x.dtype)
        for block in self.layers:
            x = checkpoint(block, x, cos, sin, use_reentrant=False) if self.recompute else block(x, cos, sin)
        weight = self.embedding["tokens"].weight if self.shape.tied_head else self.head_weight
        logits = F.linear(self.head["norm"](x), weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), targets.reshape(-1))


def adamw(model, lr, betas=(0.9, 0.95), weight_decay=0.1, fused=True):
    """Decays matrices only, as DeepShard does."""
    decayed = [p for p in model.parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if p.dim() != 2]
    return torch.optim.AdamW([{"params": decayed, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}],
                             lr=lr, betas=betas, eps=1e-8, fused=fused)


def attention_used(run):
    """The operator that scaled_dot_product_attention chose in run(), by the profiler's word."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile, torch.no_grad():
        run()
    names = {event.key for event in profile.key_averages()}
    found = [n for n in names if n.startswith("aten::_scaled_dot_product_") and n.count("attention")]
    return ", ".join(sorted(n.removeprefix("aten::") for n in found)) or "unknown"
