#!/usr/bin/env python3
"""Times AdamW on the host: ours, PyTorch's fused one, and a stream that reads and writes the same bytes, taking turns.

A side's number is the median over its turns; the fastest and the slowest turn stand beside it. Exit code 1 where ours
is below PyTorch's; or, of sizes that the last cache does not hold, below 0.9 of the stream, by medians. (In caches the
arithmetic is the limit: a division and a root a parameter.)
"""
import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
STATE_BYTES = 16  # a parameter: master, two moments, gradient in fp32
CASES = [("f32", 28, "fp32"), ("bf16-copy", 30, "fp32, working copy in bf16"),
         ("bf16-gradient", 28, "gradient and working copy in bf16")]
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def bytes_of(text):
    for unit, factor in UNITS.items():
        if text.endswith(unit):
            return int(text[:-len(unit)]) * factor
    raise SystemExit(f"error: --state {text}: write sizes as 64KiB, 16MiB or 1GiB")


def last_cache():
    """Bytes; 32 MiB where the system does not tell, as the kernels take it."""
    told = subprocess.run(["getconf", "LEVEL3_CACHE_SIZE"], capture_output=True, text=True).stdout.strip()
    return int(told) if told.isdigit() and int(told) > 0 else 32 << 20


class Ours:
    """ds-bench with the arrays of one size, which runs what its standard input asks for."""

    def __init__(self, options, size):
        environment = dict(os.environ, OMP_NUM_THREADS=str(options.threads))
        self.process = subprocess.Popen(
            [str(options.build / "bin/ds-bench"), "optimizer", "--device", "cpu", "--threads", str(options.threads),
             "--state", size, "--turns"], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def time(self, case, side, runs):
        self.process.stdin.write(f"{case} {side} {runs}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"error: ds-bench ended with {self.process.wait()}")
        return json.loads(line)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class PyTorch:
    """torch.optim.AdamW(fused=True) of one flat parameter, in this process."""

    def __init__(self, torch, parameters):
        generator = torch.Generator().manual_seed(1)
        self.parameter = torch.nn.Parameter(torch.empty(parameters).normal_(0, 0.02, generator=generator))
        self.parameter.grad = torch.empty(parameters).normal_(0, 1e-3, generator=generator)
        self.half_gradient = self.parameter.grad.bfloat16()
        self.copy = self.parameter.detach().bfloat16()
        self.optimizer = torch.optim.AdamW([self.parameter], lr=1e-5, weight_decay=0.01, fused=True)

    def step(self, case):
        if case == "bf16-gradient":
            self.parameter.grad.copy_(self.half_gradient)
        self.optimizer.step()
        if case != "f32":
            self.copy.copy_(self.parameter.detach())

    def time(self, case, runs):
        begin = time.perf_counter()
        for _ in range(runs):
            self.step(case)
        return (time.perf_counter() - begin) / runs


def measure(options, torch, size):
    """{(case, side): seconds of a run, a turn each}"""
    parameters = bytes_of(size) // STATE_BYTES
    theirs, ours = PyTorch(torch, parameters), Ours(options, size)
    sides = {"ours": lambda case, runs: ours.time(case, "step", runs),
             "PyTorch": theirs.time,
             "stream": lambda case, runs: ours.time(case, "stream", runs)}
    times = {(case, side): [] for case, _, _ in CASES for side in sides}
    try:
        slowest = 1e-6
        for case, _, _ in CASES:
            for run in sides.values():
                run(case, 2)
                slowest = max(slowest, min(run(case, 1) for _ in range(3)))
        runs = max(1, int(options.turn / slowest))
        end, turn = time.monotonic() + options.seconds, 0
        while time.monotonic() < end or turn < 3:
            order = list(sides)
            for case, _, _ in CASES:
                for side in order[turn % 3:] + order[:turn % 3]:  # nobody is always behind the same other
                    times[case, side].append(sides[side](case, runs))
            turn += 1
    finally:
        ours.close()
    return times


def show(size, times):
    parameters = bytes_of(size) // STATE_BYTES
    missed = False
    for case, bytes_each, what in CASES:
        rates = {side: sorted(bytes_each * parameters / seconds / 1e9 for seconds in times[case, side])
                 for side in ("ours", "PyTorch", "stream")}
        median = {side: statistics.median(values) for side, values in rates.items()}
        to_torch, to_stream = median["ours"] / median["PyTorch"], median["ours"] / median["stream"]
        missed |= to_torch < 1 or (bytes_of(size) > last_cache() and to_stream < 0.9)
        print(f"{size:>8} {what:34} " + "  ".join(
            f"{side} {median[side]:6.1f} ({values[0]:.1f} to {values[-1]:.1f})" for side, values in rates.items())
            + f"  of PyTorch {to_torch:.2f} (best {rates['ours'][-1] / rates['PyTorch'][-1]:.2f}), of the stream "
            f"{to_stream:.2f} (best {rates['ours'][-1] / rates['stream'][-1]:.2f}), {len(rates['ours'])} turns",
            flush=True)
    return missed


def cpu_model():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown"


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # an exception ends what was started; a signal would not
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent.parent / "build", help="build tree of DeepShard")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="threads of every side")
    parser.add_argument("--state", default="256KiB,16MiB,128MiB,1GiB",
                        help="sizes of master, moments and gradient in fp32, with commas")
    parser.add_argument("--seconds", type=float, default=20, help="for a size, about")
    parser.add_argument("--turn", type=float, default=0.05, help="seconds of a turn, about; one run at least")
    options = parser.parse_args()
    if not (options.build / "bin/ds-bench").exists():
        raise SystemExit(f"error: {options.build}/bin/ds-bench is missing; build it: scripts/build.sh ds-bench")
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:options.threads])  # all sides inherit it
    try:
        import torch
    except ImportError as error:
        raise SystemExit(f"error: {error}; run this with a python3 that has PyTorch "
                         "(scripts/bench/host_optimizer.sh --help)")
    torch.set_num_threads(options.threads)
    print(f"AdamW, {options.threads} threads each, GB/s of what a step must read and write: median (slowest to fastest turn)\n"
          f"{cpu_model()}, {os.cpu_count()} cores; torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}; "
          f"load {os.getloadavg()[0]:.1f}")
    missed = [show(size, measure(options, torch, size)) for size in options.state.split(",")]
    sys.exit(1 if any(missed) else 0)


if __name__ == "__main__":
    main()
