#!/usr/bin/env python3
"""One GPT-2 training process of PyTorch on the CPU, driven over standard input; the other side of cpu_speed.py.

Prints a line of JSON that describes it, then for each line "N" read trains N steps and prints a line of JSON with the
wall and processor seconds of every step and the losses. Ends at end of file.

The model is GPT-2 as published: learned positions, LayerNorm before each half block, GELU by tanh, a head tied to the
token table, biases everywhere, no dropout. A step is forward, backward, clipping of the gradient's norm, AdamW; parameters and
moments are fp32. bf16 is autocast; bf16-weights casts the parameters themselves (no fp32 master: not the same
training, for information only).
"""
import argparse
import json
import resource
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(hidden)
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.proj = nn.Linear(hidden, hidden)
        self.norm2 = nn.LayerNorm(hidden)
        self.up = nn.Linear(hidden, 4 * hidden)
        self.down = nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        batch, tokens, hidden = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, tokens, 3, self.heads, hidden // self.heads).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(attended.transpose(1, 2).reshape(batch, tokens, hidden))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, layers, hidden, heads, vocabulary, positions):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, hidden)
        self.positions = nn.Embedding(positions, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                scaled = name.endswith(("proj.weight", "down.weight"))
                nn.init.normal_(p, std=0.02 / (2 * layers) ** 0.5 if scaled else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def attention_used(model, ids, targets, autocast):
    """The operator that scaled_dot_product_attention chose, by the profiler's word."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile, autocast(), torch.no_grad():
        model(ids, targets)
    names = {event.key for event in profile.key_averages()}
    found = [n for n in names if n.startswith("aten::_scaled_dot_product_") and n.count("attention")]
    return ", ".join(sorted(n.removeprefix("aten::") for n in found)) or "unknown"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compile", action="store_true", help="torch.compile the model")
    parser.add_argument("--dtype", choices=["fp32", "bf16", "bf16-weights"], default="fp32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=4, help="samples a step")
    parser.add_argument("--sequence", type=int, default=256, help="tokens a sample")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--vocabulary", type=int, default=50257)
    parser.add_argument("--positions", type=int, default=1024)
    parser.add_argument("--profile", metavar="FILE", help="write a table of where a step's time goes, after warming up")
    options = parser.parse_args()

    torch.manual_seed(1234)
    torch.set_num_threads(options.threads)
    model = Gpt2(options.layers, options.hidden, options.heads, options.vocabulary, options.positions)
    if options.dtype == "bf16-weights":
        model.bfloat16()
    decayed = [p for p in model.parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if p.dim() != 2]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                                  lr=3e-4, betas=(0.9, 0.95), fused=True)

    def autocast():
        return torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.dtype == "bf16")

    def batch():
        ids = torch.randint(0, options.vocabulary, (options.batch, options.sequence + 1))
        return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()

    attention = attention_used(model, *batch(), autocast)
    run = torch.compile(model) if options.compile else model

    def step():
        ids, targets = batch()
        with autocast():
            loss = run(ids, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    def processor_seconds():
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return usage.ru_utime + usage.ru_stime

    print(json.dumps({"torch": torch.__version__, "mode": "compile" if options.compile else "eager",
                      "dtype": options.dtype, "threads": torch.get_num_threads(), "attention": attention,
                      "parameters": sum(p.numel() for p in model.parameters()),
                      "cpu": torch.backends.cpu.get_cpu_capability(),
                      "mkldnn_bf16": bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())}), flush=True)
    for line in sys.stdin:
        result = {"seconds": [], "cpu_seconds": [], "losses": []}
        for _ in range(int(line)):
            begin, cpu = time.perf_counter(), processor_seconds()
            result["losses"].append(step())
            result["seconds"].append(time.perf_counter() - begin)
            result["cpu_seconds"].append(processor_seconds() - cpu)
        print(json.dumps(result), flush=True)
    if options.profile:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            step()
        with open(options.profile, "w", encoding="utf-8") as out:
            out.write(profile.key_averages().table(sort_by="self_cpu_time_total", row_limit=40))


if __name__ == "__main__":
    main()
