#!/usr/bin/env python3
"""Runs whole jobs on this machine's GPUs and checks what they promise; prints a line a check.

    scripts/gpu_jobs.py                     all checks that this machine's GPUs allow
    scripts/gpu_jobs.py stages kill         some: same, cpu, stages, fp8, kill, resume, refusal,
                                            memory, losses
    scripts/gpu_jobs.py memory --models gpt2-124m gpt2-1.5b
    scripts/gpu_jobs.py --device cpu same stages kill resume     without GPUs: the same checks on CPU workers

  same     a job repeated gives the same losses and parameters, bit for bit
  cpu      a tiny job's fp32 losses on a GPU and on a CPU agree within 1e-5 of the loss
  stages   ZeRO 0 to 3 on two ranks give the same bits over 20 steps: with and without recomputation, and with
           accumulation under training.exact_sharding
  fp8      with training.fp8 a job repeats bit for bit, and its losses stay near those of bf16 (GPUs: compute
           capability 8.9 or more)
  kill     kill -9 of one worker: the job ends within 15 s with exit code 137 and the rank named; no process and no
           GPU memory is left; with launch.restarts it goes on by itself and completes
  resume   a job interrupted by SIGTERM and resumed ends with the bits of one that was not
  refusal  a plan that does not fit is refused (exit code 2) with the numbers, before a worker starts
  memory   predicted device memory beside the measured one: within 2% (GPUs only)
  losses   GPT-2 124M follows PyTorch's losses, of which there is a record, for 300 steps, within the spread of
           PyTorch's own precisions (scripts/bench/gpt2_losses.py; GPUs only)

Needs a build or a bundle and nothing else. Exit code: 0 all passed, 1 otherwise.
"""
import argparse
import contextlib
import hashlib
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent

JOB = """
model: {{{model}}}
data: {{train: text.txt, sequence_length: {sequence}}}
training: {{steps: {steps}, log_every: 1, device: {device}, recompute: {recompute}, exact_sharding: {exact},
           fp8: {fp8}}}
checkpoint: {{every: {every}}}
launch: {{restarts: {restarts}}}
deepspeed:
  train_micro_batch_size_per_gpu: {micro}
  gradient_accumulation_steps: {accumulation}
  gradient_clipping: 1.0
  bf16: {{enabled: {bf16}}}
  zero_optimization: {{stage: {stage}}}
  optimizer: {{type: AdamW, params: {{lr: 1e-3, weight_decay: 0.1}}}}
"""
SMALL = "layers: 3, hidden: 128, heads: 2, vocabulary: 257"
DEFAULTS = dict(model=SMALL, sequence=128, steps=20, recompute="none", exact="false", every=0, restarts=0, micro=2,
                accumulation=1, bf16="true", stage=0, fp8="false")


class Failed(Exception):
    pass


RUNNING = []  # every ds-launch that was started


def end_running():
    """No job outlives the script: a killed ds-launch takes its agents and workers with it within 2 s."""
    for process in RUNNING:
        if process.poll() is None:
            process.kill()
            process.wait()


class Job:
    """One job file in a folder of its own, and the runs of it."""

    def __init__(self, options, folder, name, ranks, **settings):
        self.options, self.ranks, self.name = options, ranks, name
        self.folder = folder / name
        self.folder.mkdir()
        letters = random.Random(1).choices("abcdefghijklmnopqrstuvwxyz \n", k=300_000)
        (self.folder / "text.txt").write_text("".join(letters))
        (self.folder / "job.yaml").write_text(JOB.format(**(DEFAULTS | {"device": options.device} | settings)))
        self.run = self.folder / "runs/job/latest"
        self.output = ""

    def start(self, *flags):
        command = [str(self.options.bin / "ds-launch"), str(self.folder / "job.yaml"), "--num-gpus", str(self.ranks),
                   "--output", str(self.folder / "runs"), *flags]
        self.log = open(self.folder / "log", "w+")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT, text=True)
        RUNNING.append(self.process)

    def wait(self, seconds=540):
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise Failed(f"{self.name}: no end within {seconds} s")
        self.log.seek(0)
        self.output = self.log.read()
        self.log.close()
        return self.process.returncode

    def complete(self, *flags):
        self.start(*flags)
        if self.wait() != 0:
            raise Failed(f"{self.name}: exit code {self.process.returncode}: {self.output.strip()[-300:]}")
        return self

    def summary(self):
        return json.loads((self.run / "summary.json").read_text())

    def losses(self):
        return [json.loads(line)["loss"] for line in (self.run / "metrics.jsonl").read_text().splitlines()]

    def step(self):
        try:
            return len((self.run / "metrics.jsonl").read_text().splitlines())
        except FileNotFoundError:
            return 0

    def parameters(self):
        """A checksum of the newest checkpoint's parameters."""
        out = self.folder / "model.safetensors"
        subprocess.run([str(self.options.bin / "ds-convert"), "export", "--checkpoint", str(self.run), "--output", str(out),
                        "--force"], check=True, stdout=subprocess.DEVNULL)
        return hashlib.sha256(out.read_bytes()).hexdigest()[:16]

    def until_step(self, step, seconds=240):
        end = time.monotonic() + seconds
        while self.step() < step:
            if self.process.poll() is not None or time.monotonic() > end:
                self.process.kill()
                raise Failed(f"{self.name}: ended before step {step}, or did not come to it within {seconds} s")
            time.sleep(0.01)


def workers(run):
    """Pids of the workers of a run, by rank."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            argv = (entry / "cmdline").read_bytes().split(b"\0")
            if not argv[0].endswith(b"ds-worker"):
                continue
            environment = dict(v.partition(b"=")[::2] for v in (entry / "environ").read_bytes().split(b"\0"))
        except OSError:
            continue
        if environment.get(b"DS_RUN_ID", b"").decode() == run.resolve().name:
            found[int(argv[argv.index(b"--rank") + 1])] = int(entry.name)
    return found


def gpu_memory():
    done = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
                          capture_output=True, text=True, check=True)
    return [int(line) for line in done.stdout.split()]


def check_same(options, folder):
    first, second = (Job(options, folder, f"same{i}", options.ranks).complete() for i in range(2))
    if first.losses() != second.losses() or first.parameters() != second.parameters():
        raise Failed("two runs of one job differ")
    return f"20 steps on {options.ranks} ranks, final loss {first.losses()[-1]:.4f}"


def check_cpu(options, folder):
    a = Job(options, folder, "on-gpu", 1, bf16="false").complete().losses()
    b = Job(options, folder, "on-cpu", 1, bf16="false", device="cpu").complete().losses()
    worst = max(abs(x - y) / abs(y) for x, y in zip(a, b, strict=True))
    if not worst < 1e-5:
        raise Failed(f"losses differ by up to {worst:.1e} of the loss")
    return f"fp32, 20 steps: within {worst:.1e} of the loss"


def check_stages(options, folder):
    said = []
    for title, settings in [("plain", {}), ("recompute", {"recompute": "full"}), ("fp32", {"bf16": "false"}),
                            ("exact", {"accumulation": 3, "exact": "true"})]:
        results = {}
        for stage in range(4):
            job = Job(options, folder, f"stage{stage}-{title}", 2, stage=stage, **settings).complete()
            results[stage] = job.losses(), job.parameters()
        different = [stage for stage in range(4) if results[stage] != results[0]]
        if different:
            raise Failed(f"{title}: ZeRO-{different[0]} differs from ZeRO-0")
        said.append(title)
    return f"ZeRO 0-3, 20 steps: equal ({', '.join(said)})"


def check_fp8(options, folder):
    first, second = (Job(options, folder, f"fp8-{i}", options.ranks, fp8="true").complete() for i in range(2))
    if first.losses() != second.losses() or first.parameters() != second.parameters():
        raise Failed("two runs of one job differ")
    a, b = first.losses(), Job(options, folder, "fp8-not", options.ranks).complete().losses()
    apart = [abs(x - y) for x, y in zip(a, b)]
    if not 0 < max(apart) <= 0.05:
        raise Failed(f"losses are up to {max(apart):.4f} from those of bf16")
    return f"equal when repeated; losses up to {max(apart):.4f} from bf16's, which end at {b[-1]:.4f}"


def check_kill(options, folder):
    before = gpu_memory() if options.device == "gpu" else []
    said = []
    for restarts in (0, 1):
        job = Job(options, folder, f"kill{restarts}", options.ranks, steps=400, every=20, restarts=restarts)
        job.start()
        job.until_step(45)
        victims = workers(job.run)
        if len(victims) != options.ranks:
            raise Failed(f"found {len(victims)} workers of {options.ranks}")
        rank = max(victims)
        os.kill(victims[rank], signal.SIGKILL)
        at = time.monotonic()
        code = job.wait()
        took = time.monotonic() - at
        summary = job.summary()
        if restarts:
            if code != 0 or summary["attempts"] != 2 or summary["steps"] != 400:
                raise Failed(f"with restarts: exit code {code}, {summary['attempts']} attempts, step {summary['steps']}")
            said.append("a restart completed all 400 steps")
        else:
            cause = summary["cause"]
            if code != 137 or cause["signal"] != 9 or cause["rank"] != rank:
                raise Failed(f"exit code {code}, cause {cause}")
            if took > 15:
                raise Failed(f"the end took {took:.1f} s")
            said.append(f"rank {cause['rank']} named, exit code 137 after {took:.1f} s")
            job.complete("--resume", "auto")
            if job.summary()["steps"] != 400:
                raise Failed(f"the resumed run ended at step {job.summary()['steps']}")
            said.append("--resume auto completed")
        if workers(job.run):
            raise Failed("workers are left")
    if before:
        time.sleep(1)
        after = gpu_memory()
        if any(a > b + 16 for a, b in zip(after, before)):
            raise Failed(f"GPU memory: {before} MiB before, {after} MiB after")
        said.append("GPU memory as before")
    return "; ".join(said)


def check_resume(options, folder):
    steps = 4000 if options.device == "gpu" else 300  # a GPU does 300 before the signal comes
    whole = Job(options, folder, "whole", options.ranks, steps=steps, stage=2).complete()
    job = Job(options, folder, "parts", options.ranks, steps=steps, stage=2)
    job.start()
    job.until_step(30)
    job.process.send_signal(signal.SIGTERM)
    code, step = job.wait(), job.step()
    if code != 143:
        raise Failed(f"exit code {code} after SIGTERM at step {step}")
    if step >= steps:
        raise Failed("the run was over before the signal came")
    job.complete("--resume", "auto")
    if job.losses()[-20:] != whole.losses()[-20:] or job.parameters() != whole.parameters():
        raise Failed("the resumed run differs from one that was not interrupted")
    return f"interrupted at step {step}, resumed: the bits of an uninterrupted run"


def check_refusal(options, folder):
    job = Job(options, folder, "refused", 1, model="preset: llama-8b", sequence=4096, micro=64, steps=1)
    job.start()
    code = job.wait(120)
    if code != 2 or "GiB" not in job.output:
        raise Failed(f"exit code {code}: {job.output.strip()[-200:]}")
    lines = [line for line in job.output.splitlines() if "error" in line]
    return lines[0][:150] if lines else job.output.strip()[:150]


MEMORY = {  # model: sequence, micro-batch, [(ranks, stage, recompute)]
    "gpt2-124m": (1024, 16, [(1, 0, "none"), (2, 0, "none"), (2, 1, "none"), (2, 2, "none"), (2, 3, "none")]),
    "gpt2-1.5b": (1024, 8, [(1, 0, "none"), (1, 0, "full"), (2, 0, "none"), (2, 1, "none"), (2, 2, "none"), (2, 3, "none")]),
    "llama-8b": (2048, 1, [(2, 1, "full"), (2, 2, "full"), (2, 3, "none")]),
}


def check_memory(options, folder):
    worst = 0.0
    for model in options.models or MEMORY:
        sequence, micro, layouts = MEMORY[model]
        for ranks, stage, recompute in layouts:
            if ranks > options.gpus:
                continue
            name = f"{model}-{ranks}-zero{stage}-{recompute}"
            try:
                job = Job(options, folder, name, ranks, model=f"preset: {model}", sequence=sequence, micro=micro, steps=3,
                          stage=stage, recompute=recompute, every=-1).complete()
            except Failed as error:
                worst = float("inf")
                print(f"    {name:32} {error}", flush=True)
                continue
            summary = job.summary()
            predicted, measured = (summary[k]["peak_bytes"]["device"] for k in ("predicted", "measured"))
            off = predicted / measured - 1
            worst = max(worst, abs(off))
            print(f"    {name:32} predicted {predicted:15,d}  measured {measured:15,d}  {100 * off:+.2f}%", flush=True)
    if not worst <= 0.02:
        raise Failed(f"off by up to {100 * worst:.2f}%")
    return f"within {100 * worst:.2f}%"


def check_losses(options, folder):
    record = ROOT / "test/data/gpt2_124m_losses.json"
    done = subprocess.run([sys.executable, str(ROOT / "scripts/bench/gpt2_losses.py"), "--against", str(record), "--bin",
                           str(options.bin)], capture_output=True, text=True)
    said = [line.strip() for line in done.stdout.splitlines() if line.strip().startswith("ours ")]
    if done.returncode or not said:
        raise Failed((done.stderr or done.stdout).strip()[-300:])
    return "; ".join(said)


CHECKS = {"same": check_same, "cpu": check_cpu, "stages": check_stages, "fp8": check_fp8, "kill": check_kill, "resume": check_resume,
          "refusal": check_refusal, "memory": check_memory, "losses": check_losses}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checks", nargs="*", metavar="CHECK", help="default: all")
    parser.add_argument("--device", choices=["gpu", "cpu"], default="gpu")
    parser.add_argument("--models", nargs="+", choices=list(MEMORY), help="of the memory check")
    parser.add_argument("--bin", type=pathlib.Path, help="where ds-launch is; default: of the bundle or build")
    parser.add_argument("--keep", type=pathlib.Path, help="an empty folder for the runs, which is kept")
    options = parser.parse_args()
    unknown = [name for name in options.checks if name not in CHECKS]
    if unknown:
        parser.error(f"unknown check {unknown[0]!r}: {', '.join(CHECKS)}")
    options.bin = options.bin or next((p for p in (ROOT / "bin", ROOT / "build/bin") if (p / "ds-launch").exists()), None)
    if not options.bin:
        parser.error("no ds-launch in bin/ or build/bin; give --bin")
    options.bin = options.bin.resolve()
    if not (options.bin / "ds-launch").exists():
        parser.error(f"--bin {options.bin}: no ds-launch there")
    if options.keep and (options.keep.exists() and not (options.keep.is_dir() and not any(options.keep.iterdir()))):
        parser.error(f"--keep {options.keep}: not an empty folder")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        options.gpus = len(gpu_memory()) if options.device == "gpu" else 2
    except (FileNotFoundError, subprocess.CalledProcessError):
        raise SystemExit("error: no GPU here; --device cpu runs what needs none")
    options.ranks = min(2, options.gpus)
    needs_gpu, needs_two = {"cpu", "memory", "losses"}, {"stages"}
    failed = False
    print(f"{options.gpus} GPUs" if options.device == "gpu" else "CPU workers", flush=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary, contextlib.ExitStack() as cleanup:
        folder = options.keep or pathlib.Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        cleanup.callback(end_running)  # before the folder goes
        for name, check in CHECKS.items():
            if options.checks and name not in options.checks:
                continue
            if (name in needs_gpu and options.device == "cpu") or (name in needs_two and options.gpus < 2):
                print(f"{name:8} skipped: it needs {'a GPU' if options.device == 'cpu' else 'two GPUs'}", flush=True)
                continue
            begin = time.monotonic()
            try:
                result, said = "passed", check(options, folder)
            except (Failed, subprocess.CalledProcessError, OSError, KeyError, json.JSONDecodeError) as error:
                result, said, failed = "FAILED", str(error), True
            print(f"{name:8} {result}  {time.monotonic() - begin:5.0f} s  {said}", flush=True)
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        end_running()
