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

try:
    import torch
except ImportError as error:
    raise SystemExit(f"error: {error}; run this with a python3 that has PyTorch (scripts/bench/cpu_speed.sh --help)")

from torch_model import Decoder, Shape, adamw, attention_used  # noqa: E402


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
    shape = Shape(options.layers, options.hidden, options.heads, options.heads, 4 * options.hidden, options.vocabulary)
    model = Decoder(shape, options.positions).start()
    if options.dtype == "bf16-weights":
        model.bfloat16()
    optimizer = adamw(model, 3e-4)

    def autocast():
        return torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.dtype == "bf16")

    def batch():
        ids = torch.randint(0, options.vocabulary, (options.batch, options.sequence + 1))
        return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()

    ids, targets = batch()
    with autocast():
        attention = attention_used(lambda: model(ids, targets))
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
