#!/usr/bin/env python3
"""Trains the same work on GPUs with ds-launch and with PyTorch, one after the other, and prints both speeds.

    scripts/bench/gpu_speed.py                                   every case that this machine's GPUs can run
    scripts/bench/gpu_speed.py gpt2-124m gpt2-1.5b               some
    scripts/bench/gpu_speed.py --side ours --trace traces gpt2-1.5b      no PyTorch; the actions of the last step
    scripts/bench/gpu_speed.py --side ours --fp8 llama-8b-2-zero3       our linear layers multiply in 8 bits
    scripts/bench/gpu_speed.py --list

A side's number is tokens over its median step after warming up. PyTorch is torch_gpu.py beside this: compiled, its own
choice of attention. Ours computes in bf16 with fp32 masters, moments and sums of gradients too, and
training.deterministic: false, as PyTorch's kernels are not deterministic. Needs a build or bundle, and PyTorch in the
python3 that runs this.
"""
import argparse
import dataclasses
import json
import pathlib
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


@dataclasses.dataclass
class Case:
    model: str
    micro_batch: int
    accumulation: int = 1
    sequence: int = 1024
    gpus: int = 1
    stage: int = 0
    sharding: str = "none"  # PyTorch's
    recompute: bool = False


CASES = {
    "gpt2-124m": Case("gpt2-124m", 64, 8),
    "gpt2-124m-2": Case("gpt2-124m", 64, 4, gpus=2, sharding="ddp"),
    "gpt2-1.5b": Case("gpt2-1.5b", 16, 8),
    "gpt2-1.5b-accumulation-1": Case("gpt2-1.5b", 16),
    "gpt2-1.5b-2": Case("gpt2-1.5b", 16, gpus=2, sharding="ddp"),
    "gpt2-1.5b-2-zero1": Case("gpt2-1.5b", 16, gpus=2, stage=1, sharding="ddp"),
    "gpt2-1.5b-2-zero2": Case("gpt2-1.5b", 16, gpus=2, stage=2, sharding="ddp"),
    "gpt2-1.5b-2-zero3": Case("gpt2-1.5b", 16, gpus=2, stage=3, sharding="fsdp"),
    "qwen2.5-1.5b": Case("qwen2.5-1.5b", 16, 4),
    "llama-1b": Case("llama-1b", 4, 4, sequence=4096),
    "llama-8b-2-zero3": Case("llama-8b", 1, sequence=8192, gpus=2, stage=3, sharding="fsdp"),
    "llama-8b-2-zero3-recompute": Case("llama-8b", 2, sequence=8192, gpus=2, stage=3, sharding="fsdp", recompute=True),
}

JOB = """
model: {{preset: {model}}}
data: {{train: text.txt, sequence_length: {sequence}}}
training: {{steps: {steps}, log_every: 1, deterministic: {deterministic}, recompute: {recompute}, fp8: {fp8}, device: gpu{trace}}}
checkpoint: {{every: -1}}
deepspeed:
  train_micro_batch_size_per_gpu: {micro_batch}
  gradient_accumulation_steps: {accumulation}
  gradient_clipping: 1.0
  bf16: {{enabled: true}}
  zero_optimization: {{stage: {stage}}}
  optimizer: {{type: AdamW, params: {{lr: 3e-4, betas: [0.9, 0.95], weight_decay: 0.1}}}}
"""


def ours(options, name, case, folder):
    letters = random.Random(1).choices("abcdefghijklmnopqrstuvwxyz \n", k=2_000_000)
    (folder / "text.txt").write_text("".join(letters))
    steps = options.warm_up + options.steps
    (folder / "job.yaml").write_text(JOB.format(
        model=case.model, sequence=case.sequence, steps=steps + bool(options.trace), stage=case.stage,
        trace=f", profile_steps: {steps + 1}" if options.trace else "",
        micro_batch=case.micro_batch, accumulation=case.accumulation,
        deterministic="true" if options.deterministic else "false", recompute="full" if case.recompute else "none",
        fp8="true" if options.fp8 else "false"))
    command = [str(options.bin / "ds-launch"), str(folder / "job.yaml"), "--num-gpus", str(case.gpus),
               "--output", str(folder / "runs")] + (["--machine", str(options.machine)] if options.machine else [])
    begin, first = time.monotonic(), None
    metrics_file = folder / "runs/job/latest/metrics.jsonl"
    with open(folder / "log", "w+") as log, subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT) as job:
        try:
            while job.poll() is None:
                if first is None and metrics_file.exists() and metrics_file.stat().st_size > 0:
                    first = time.monotonic() - begin
                time.sleep(0.02)
        finally:
            job.terminate()
        log.seek(0)
        if job.returncode:
            raise RuntimeError(f"ds-launch ended with {job.returncode}: {log.read().strip()[-300:]}")
    run = folder / "runs/job/latest"
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    if options.trace:
        shutil.copytree(run / "profile", options.trace / name, dirs_exist_ok=True)
    timed = metrics[options.warm_up:steps]
    seconds = [m["step_ms"] / 1000 for m in timed]
    tokens = case.micro_batch * case.accumulation * case.sequence * case.gpus
    return {"tokens_per_second": tokens / statistics.median(seconds), "seconds": seconds,
            "losses": [m["loss"] for m in metrics], "peak_bytes": metrics[-1]["peak_bytes"]["device"],
            "mfu": statistics.median(m.get("mfu") or 0 for m in timed),
            "exposed": statistics.median(m["comm_exposed_ms"] for m in timed) / 1000 / statistics.median(seconds),
            "first_step_seconds": first}


def peer(options, case):
    command = [sys.executable, str(HERE / "torch_gpu.py"), "--model", case.model, "--gpus", str(case.gpus),
               "--sharding", case.sharding, "--micro-batch", str(case.micro_batch), "--sequence", str(case.sequence),
               "--accumulation", str(case.accumulation), "--steps", str(options.steps), "--warm-up", str(options.warm_up)]
    done = subprocess.run(command + ["--recompute"] * case.recompute, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"torch_gpu.py ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    return json.loads(done.stdout.splitlines()[-1])


def shown(side, key, width, digits, unit=1):
    return f"{side[key] / unit:{width}.{digits}f}" if side and side[key] is not None else "-".rjust(width)


def number_of_gpus():
    try:
        done = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True)
    except FileNotFoundError:
        return 0
    return len(done.stdout.splitlines()) if done.returncode == 0 else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help="default: all that fit")
    parser.add_argument("--list", action="store_true", help="the cases")
    parser.add_argument("--bin", type=pathlib.Path, help="where ds-launch is; default: of the bundle or build")
    parser.add_argument("--machine", type=pathlib.Path, help="a machine file for ds-launch")
    parser.add_argument("--deterministic", action="store_true", help="our side with training.deterministic: true")
    parser.add_argument("--fp8", action="store_true", help="our side with training.fp8: true; PyTorch stays with bf16")
    parser.add_argument("--steps", type=int, default=8, help="that are timed, a side")
    parser.add_argument("--warm-up", type=int, default=4, help="steps before them")
    parser.add_argument("--side", choices=["both", "ours", "torch"], default="both", help="leave the other out")
    parser.add_argument("--trace", type=pathlib.Path, metavar="FOLDER",
                        help="our side does one step more, whose actions are written there, for chrome://tracing")
    parser.add_argument("--json", type=pathlib.Path, help="write all that was measured")
    options = parser.parse_args()
    if options.steps < 1 or options.warm_up < 0:
        parser.error("--steps must be at least 1 and --warm-up at least 0")
    try:  # now, not after minutes of training
        if options.trace:
            options.trace.mkdir(parents=True, exist_ok=True)
        if options.json:
            options.json.touch()
    except OSError as error:
        parser.error(str(error))
    if options.list:
        for name, case in CASES.items():
            print(f"{name:28} {case}")
        return
    unknown = [name for name in options.cases if name not in CASES]
    if unknown:
        parser.error(f"unknown case {unknown[0]!r}; --list shows them")
    options.bin = options.bin or next((p for p in (ROOT / "bin", ROOT / "build/bin") if (p / "ds-launch").exists()), None)
    if not options.bin:
        parser.error("no ds-launch in bin/ or build/bin; give --bin")
    options.bin = options.bin.resolve()
    if not (options.bin / "ds-launch").exists():
        parser.error(f"--bin {options.bin}: no ds-launch there")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # subprocess.run then ends what it runs
    gpus = number_of_gpus()
    if gpus == 0:
        raise SystemExit("error: no GPU here")
    results, failed = {}, False
    print(f"{'case':28} {'ours':>9} {'PyTorch':>9} {'ratio':>5}  {'mfu':>5} {'exposed':>7} {'GiB':>6} {'GiB':>6} {'first':>6} {'first':>6}  "
          "tokens/s; ours: mfu, share of exposed communication; peak memory; seconds to the end of the first step; "
          "attention of PyTorch")
    for name, case in CASES.items():
        if (options.cases and name not in options.cases) or (not options.cases and case.gpus > gpus):
            continue
        a = b = None
        try:
            with tempfile.TemporaryDirectory() as folder:
                if options.side != "torch":
                    a = ours(options, name, case, pathlib.Path(folder))
                if options.side != "ours":
                    b = peer(options, case)
        except RuntimeError as error:
            failed = True
            print(f"{name:28} not measured: {error}", flush=True)
            continue
        results[name] = {"ours": a, "torch": b}
        print(f"{name:28} {shown(a, 'tokens_per_second', 9, 0)} {shown(b, 'tokens_per_second', 9, 0)} "
              + (f"{a['tokens_per_second'] / b['tokens_per_second']:5.2f}" if a and b else "    -")
              + f"  {shown(a, 'mfu', 5, 3)} {shown(a, 'exposed', 7, 3)} {shown(a, 'peak_bytes', 6, 1, 2**30)} "
              f"{shown(b, 'peak_bytes', 6, 1, 2**30)} {shown(a, 'first_step_seconds', 6, 1)} "
              f"{shown(b, 'first_step_seconds', 6, 1)}  {b['attention'] if b else ''}", flush=True)
        if options.json:
            options.json.write_text(json.dumps(results, indent=1))
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
