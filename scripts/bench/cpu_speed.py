#!/usr/bin/env python3
"""Trains GPT-2 on the CPU with ds-launch and with PyTorch, taking turns, and prints the tokens a second of both.

A side's number is the median over all steps of all rounds, the first steps of each round left out. Exit code 1 where
the ratio to the better of PyTorch's modes is below 1.
"""
import argparse
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
WARM_UP = 2  # steps of a round that do not count

JOB = """
model: {{preset: gpt2-124m, dropout: 0}}
data: {{train: text.txt, sequence_length: {sequence}}}
training: {{steps: {steps}, validate_every: 0, log_every: 1}}
checkpoint: {{every: -1}}
deepspeed:
  train_batch_size: {batch}
  train_micro_batch_size_per_gpu: {batch}
  gradient_clipping: 1.0
  bf16: {{enabled: {bf16}}}
  optimizer: {{type: AdamW, params: {{lr: 3e-4, betas: [0.9, 0.95], weight_decay: 0.1}}}}
"""


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


class Ours:
    """A job of ds-launch a round: one worker with all threads."""

    def __init__(self, options, dtype, folder):
        self.name, self.options, self.dtype = "ours", options, dtype
        self.folder = folder / f"ours-{dtype}"
        self.folder.mkdir()
        letters = random.Random(1).choices("abcdefghijklmnopqrstuvwxyz \n", k=200000)
        (self.folder / "text.txt").write_text("".join(letters))
        self.speeds, self.losses, self.steps = [], [], 5

    def round(self):
        steps = WARM_UP + self.steps
        (self.folder / "job.yaml").write_text(JOB.format(
            sequence=self.options.sequence, batch=self.options.batch, steps=steps,
            bf16="true" if self.dtype == "bf16" else "false"))
        command = [str(self.options.build / "bin/ds-launch"), str(self.folder / "job.yaml"), "--num-gpus", "1",
                   "--output", str(self.folder / "runs")]
        environment = dict(os.environ, OMP_NUM_THREADS=str(self.options.threads))
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"error: ds-launch ended with {done.returncode}\n{done.stdout}{done.stderr}")
        metrics = read_lines(self.folder / "runs/job/latest/metrics.jsonl")
        self.losses = [m["loss"] for m in metrics]
        times = [m["step_ms"] / 1000 for m in metrics]
        self.speeds += [self.options.batch * self.options.sequence / t for t in times[WARM_UP:]]
        self.adapt(times[WARM_UP:])

    def adapt(self, times):
        """Steps of the next round: as many as fit the seconds of a turn."""
        self.steps = max(2, min(40, int(self.options.seconds / statistics.median(times))))

    def close(self):
        pass


class PyTorch(Ours):
    """One process for all rounds, which sleeps while others have their turn."""

    def __init__(self, options, dtype, compiled):
        self.name, self.options, self.dtype = "torch compiled" if compiled else "torch eager", options, dtype
        command = [sys.executable, str(HERE / "torch_cpu.py"), "--dtype", dtype, "--threads", str(options.threads),
                   "--batch", str(options.batch), "--sequence", str(options.sequence)]
        environment = dict(os.environ, OMP_NUM_THREADS=str(options.threads))
        if compiled:
            command.append("--compile")
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL if not options.verbose else None, text=True)
        self.speeds, self.losses, self.steps = [], [], 2
        self.facts = self.read()
        begin = time.perf_counter()
        self.train(1)  # compiles
        self.first_step = time.perf_counter() - begin

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"error: {self.name} {self.dtype} ended with {self.process.wait()}; "
                             "run with --verbose to see why")
        return json.loads(line)

    def train(self, steps):
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        result = self.read()
        self.losses += result["losses"]
        return result["seconds"]

    def round(self):
        times = self.train(WARM_UP + self.steps)[WARM_UP:]
        self.speeds += [self.options.batch * self.options.sequence / t for t in times]
        self.adapt(times)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def measure(options, dtype, folder):
    print(f"\n{dtype}")
    sides = [Ours(options, dtype, folder)]
    failed = False
    for compiled in [mode == "compiled" for mode in options.modes.split(",")]:
        try:
            sides.append(PyTorch(options, dtype, compiled))
        except SystemExit as error:  # no compiler for torch.compile, say: eager alone then
            if not compiled:
                raise
            print(f"  torch compiled: not measured: {error}")
    if options.bf16_weights and dtype == "bf16":
        sides.append(PyTorch(options, "bf16-weights", False))
    try:
        for _ in range(options.rounds):
            for side in sides:
                side.round()
        for side in sides:
            low, high = min(side.speeds), max(side.speeds)
            label = side.name + (" (weights in bf16, for information)" if side.dtype == "bf16-weights" else "")
            print(f"  {label:16} {statistics.median(side.speeds):8.1f} tokens/s  median of {len(side.speeds)} steps "
                  f"({low:.1f} to {high:.1f}); losses {side.losses[0]:.3f} ... {side.losses[-1]:.3f}"
                  + (f"; {side.facts['attention']}, first step {side.first_step:.1f} s" if side.name != "ours" else ""))
        ours = statistics.median(sides[0].speeds)
        peers = [s for s in sides[1:] if s.dtype == dtype]
        better = max(peers, key=lambda s: statistics.median(s.speeds))
        ratio = ours / statistics.median(better.speeds)
        failed = ratio < 1
        print(f"  ratio to the better ({better.name}): {ratio:.2f}  {'missed' if failed else 'met'}")
    finally:
        for side in sides:
            side.close()
    return failed


def cpu_model():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown"


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # an exception ends what was started; a signal would not
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent.parent / "build", help="build tree of DeepShard")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="threads of either side")
    parser.add_argument("--batch", type=int, default=4, help="samples a step")
    parser.add_argument("--sequence", type=int, default=256, help="tokens a sample")
    parser.add_argument("--dtypes", default="fp32,bf16", help="fp32, bf16 or both, with a comma")
    parser.add_argument("--modes", default="eager,compiled", help="of PyTorch: eager, or eager,compiled")
    parser.add_argument("--rounds", type=int, default=2, help="turns that each side has")
    parser.add_argument("--seconds", type=float, default=12, help="length of a turn, about")
    parser.add_argument("--bf16-weights", action="store_true", help="PyTorch with parameters in bf16 too")
    parser.add_argument("--verbose", action="store_true", help="show what PyTorch writes to standard error")
    options = parser.parse_args()
    if not (options.build / "bin/ds-launch").exists():
        raise SystemExit(f"error: {options.build}/bin/ds-launch is missing; build it: "
                         "cmake --preset release && cmake --build build")
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:options.threads])  # both sides inherit it
    import torch
    features = [f for f in ("avx2", "avx512f", "avx512_bf16", "amx_bf16")
                if f in pathlib.Path("/proc/cpuinfo").read_text().split()]
    print(f"GPT-2 124M, {options.batch} samples of {options.sequence} tokens a step, {options.threads} threads each\n"
          f"{cpu_model()}, {os.cpu_count()} cores; {' '.join(features)}; torch {torch.__version__}")
    with tempfile.TemporaryDirectory() as folder:
        failed = [measure(options, dtype, pathlib.Path(folder)) for dtype in options.dtypes.split(",")]
    sys.exit(1 if any(failed) else 0)


if __name__ == "__main__":
    main()
