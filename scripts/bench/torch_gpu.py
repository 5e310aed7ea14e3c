#!/usr/bin/env python3
"""Trains one of the presets with PyTorch on the GPUs of this machine; the other side of gpu_speed.py.

    scripts/bench/torch_gpu.py --model gpt2-124m --micro-batch 64 --accumulation 8
    scripts/bench/torch_gpu.py --model llama-1b --sequence 4096 --micro-batch 4 --gpus 2 --sharding fsdp

Prints one line of JSON: tokens a second over the median step, seconds of every step, losses, the allocator's peak, and the attention
that PyTorch chose. Compute is bf16; parameters, moments and gradients' sums are fp32. One GPU: autocast and torch.compile.
--sharding ddp is DistributedDataParallel; fsdp is FSDP2's fully_shard of every block (ZeRO-3; compiled blocks; mixed
precision by its policy). A step is forward and backward of --accumulation micro-batches, clipping of the gradient's
norm, fused AdamW. Tokens are random.
"""
import argparse
import contextlib
import json
import os
import statistics
import tempfile
import time

try:
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as mp
except ImportError as error:
    raise SystemExit(f"error: {error}; run this with a python3 that has PyTorch")

from torch_model import SHAPES, Decoder, adamw, attention_used  # noqa: E402


def build(options, device):
    """The model as PyTorch's users train it: (what to call, the module that owns the parameters, a context)."""
    shape = SHAPES[options.model]
    if options.sharding == "fsdp":
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
        with torch.device("meta"):
            model = Decoder(shape, options.sequence, options.recompute)
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for block in model.layers:
            if not options.eager:
                block.compile()
            fully_shard(block, mp_policy=policy)
        fully_shard(model, mp_policy=policy)
        model.to_empty(device=device)
        model.start()
        return model, model, contextlib.nullcontext
    model = Decoder(shape, options.sequence, options.recompute).to(device).start()
    run = model if options.eager else torch.compile(model)
    if options.sharding == "ddp":
        run = torch.nn.parallel.DistributedDataParallel(run, device_ids=[device], gradient_as_bucket_view=True)
    return run, model, lambda: torch.autocast("cuda", dtype=torch.bfloat16)


def train(rank, options, store):
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    if options.gpus > 1 or options.sharding == "fsdp":
        dist.init_process_group("nccl", init_method=f"file://{store}", rank=rank, world_size=options.gpus,
                                device_id=device)
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(1234)
    begin = time.perf_counter()
    run, model, autocast = build(options, device)
    optimizer = adamw(model, 3e-4)
    torch.manual_seed(1 + rank)
    ids = torch.randint(0, SHAPES[options.model].vocabulary, (options.micro_batch, options.sequence + 1), device=device)
    inputs, targets = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
    attention = "unknown"
    if options.sharding == "none":
        with autocast():
            attention = attention_used(lambda: model(inputs, targets))

    def step():
        total = torch.zeros((), device=device)
        for i in range(options.accumulation):
            last = i == options.accumulation - 1
            if options.sharding == "fsdp":
                model.set_requires_gradient_sync(last)
            elif options.sharding == "ddp":
                run.require_backward_grad_sync = last
            with autocast():
                loss = run(inputs, targets) / options.accumulation
            loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return total

    seconds, losses, first = [], [], None
    for i in range(options.warm_up + options.steps):
        torch.cuda.synchronize()
        at = time.perf_counter()
        loss = step()
        torch.cuda.synchronize()
        first = first or time.perf_counter() - begin
        if i >= options.warm_up:
            seconds.append(time.perf_counter() - at)
        losses.append(loss.item())
    if rank == 0:
        tokens = options.micro_batch * options.sequence * options.accumulation * options.gpus
        print(json.dumps({
            "torch": torch.__version__, "gpu": torch.cuda.get_device_name(device), "gpus": options.gpus,
            "model": options.model, "sharding": options.sharding, "mode": "eager" if options.eager else "compile",
            "attention": attention, "micro_batch": options.micro_batch, "sequence": options.sequence,
            "accumulation": options.accumulation, "tokens_per_second": tokens / statistics.median(seconds),
            "seconds": seconds, "first_step_seconds": first, "losses": losses,
            "peak_bytes": torch.cuda.max_memory_allocated(device)}), flush=True)
    if dist.is_initialized():
        dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=sorted(SHAPES), default="gpt2-124m")
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--sharding", choices=["none", "ddp", "fsdp"], help="default: none on one GPU, else ddp")
    parser.add_argument("--micro-batch", type=int, default=16, help="samples a GPU at a time")
    parser.add_argument("--sequence", type=int, default=1024, help="tokens a sample")
    parser.add_argument("--accumulation", type=int, default=1, help="micro-batches a step")
    parser.add_argument("--steps", type=int, default=8, help="that are timed")
    parser.add_argument("--warm-up", type=int, default=4, help="steps before them")
    parser.add_argument("--recompute", action="store_true", help="whole blocks anew in the backward")
    parser.add_argument("--eager", action="store_true", help="no torch.compile")
    options = parser.parse_args()
    options.sharding = options.sharding or ("none" if options.gpus == 1 else "ddp")
    if options.gpus > 1 and options.sharding == "none":
        parser.error("--gpus above 1 needs --sharding ddp or fsdp")
    if torch.cuda.device_count() < options.gpus:
        parser.error(f"--gpus {options.gpus}: this machine has {torch.cuda.device_count()}")
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        if options.gpus == 1:
            train(0, options, store)
        else:
            mp.spawn(train, args=(options, store), nprocs=options.gpus)


if __name__ == "__main__":
    main()
