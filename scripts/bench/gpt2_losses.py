#!/usr/bin/env python3
"""Trains GPT-2 from one start on the same batches with PyTorch, in fp32 and bf16, and with ds-launch; compares losses.

    scripts/bench/gpt2_losses.py --record losses.json     PyTorch's side, and the start, recorded
    scripts/bench/gpt2_losses.py --against losses.json    ours against the record; no PyTorch needed
    scripts/bench/gpt2_losses.py --device cpu --layers 2 --hidden 64 --heads 4 --vocabulary 257 --sequence 64 --steps 60

The start is what a job with seed 1234 starts from: ds-launch writes it as the checkpoint of a step with learning rate
0, ds-convert exports it. The text is made here, from a fixed seed: words of a made-up language whose order can be
learned. The order of samples is that of runtime/data/sampler.cc, written down again here. Both sides train with AdamW,
a warm-up of 50 steps, weight decay of matrices and clipping.

Distance: the mean over all steps of |loss - PyTorch's fp32 loss|. PyTorch's own spread is that of its bf16 run, in which
parameters and activations are bf16 (as in ours, and in FSDP's mixed precision); autocast, which keeps activations
between layers in fp32, is shown beside it. Exit code 1 where one of ours (fp32, bf16) is farther than the spread; with
--fp8 ours with training.fp8 is told too, and not held against it. The start's checksum is recorded: another start (a
change of the initialisation) is an error, not a difference.
"""
import argparse
import hashlib
import json
import math
import pathlib
import random
import signal
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SEED, LR, WARM_UP = 1234, 6e-4, 50
SHAPE = ("layers", "hidden", "heads", "vocabulary", "sequence", "batch", "steps")  # what a record is of
MASK = (1 << 64) - 1

JOB = """
job: {{name: losses, seed: {seed}}}
model: {{layers: {layers}, hidden: {hidden}, heads: {heads}, vocabulary: {vocabulary}}}
data: {{train: text.txt, sequence_length: {sequence}}}
training: {{steps: {steps}, log_every: 50, device: {device}, fp8: {fp8}}}
checkpoint: {{every: {checkpoint}}}
deepspeed:
  train_batch_size: {batch}
  train_micro_batch_size_per_gpu: {batch}
  gradient_clipping: 1.0
  bf16: {{enabled: {bf16}}}
  optimizer: {{type: AdamW, params: {{lr: {lr}, betas: [0.9, 0.95], weight_decay: {decay}}}}}
  {scheduler}
"""
SCHEDULER = "scheduler: {{type: WarmupLR, params: {{warmup_min_lr: 0, warmup_max_lr: {lr}, warmup_num_steps: {steps}, warmup_type: linear}}}}"


def text():
    """4 MB: sentences of 3000 made-up words, each followed by one of eight others."""
    r = random.Random(SEED)
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    weights = [1 / (i + 2) for i in range(26)]
    words = ["".join(r.choices(letters, weights, k=r.randint(1, 9))) for _ in range(3000)]
    after = [[r.randrange(3000) for _ in range(8)] for _ in words]
    out, size, word = [], 0, 0
    while size < 4_000_000:
        word = after[word][min(int(r.expovariate(0.6)), 7)]
        out.append(words[word] + (".\n" if r.random() < 0.08 else " "))
        size += len(out[-1])
    return "".join(out)


def mix(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def sample_at(position, samples):
    """The index of the sample at a position of training: runtime/data/sampler.cc."""
    half = 1
    while half < 31 and 1 << (2 * half) < samples:
        half += 1
    mask, key = (1 << half) - 1, mix(mix(SEED) ^ (position // samples))
    index = position % samples
    while True:
        left, right = index >> half, index & mask
        for i in range(8):
            left, right = right, left ^ (mix(right ^ mix((key + i) & MASK)) & mask)
        index = left << half | right
        if index < samples:
            return index


class Ours:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        (folder / "text.txt").write_text(text())

    def launch(self, name, steps, bf16, lr, decay, scheduler, checkpoint, fp8=False):
        o = self.options
        (self.folder / f"{name}.yaml").write_text(JOB.format(
            seed=SEED, layers=o.layers, hidden=o.hidden, heads=o.heads, vocabulary=o.vocabulary, sequence=o.sequence,
            steps=steps, batch=o.batch, bf16=str(bf16).lower(), lr=lr, decay=decay, scheduler=scheduler,
            device=o.device, checkpoint=checkpoint, fp8=str(fp8).lower()))
        done = subprocess.run([str(o.bin / "ds-launch"), str(self.folder / f"{name}.yaml"), "--num-gpus", "1", "--output",
                               str(self.folder / name)], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"error: ds-launch ended with {done.returncode}\n{done.stdout[-2000:]}{done.stderr}")
        return self.folder / name / "losses/latest"

    def start(self):
        """The file that holds the parameters before the first step."""
        run = self.launch("start", 1, False, 0, 0, "", 0)
        out = self.folder / "start.safetensors"
        subprocess.run([str(self.options.bin / "ds-convert"), "export", "--checkpoint", str(run), "--output", str(out)],
                       check=True, stdout=subprocess.DEVNULL)
        return out

    def losses(self, name):
        scheduler = SCHEDULER.format(lr=LR, steps=WARM_UP)
        run = self.launch(name, self.options.steps, name != "fp32", LR, 0.1, scheduler, -1, fp8=name == "fp8")
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        return [m["loss"] for m in lines], [m["lr"] for m in lines]


def read_safetensors(path):
    """Name -> (shape, bytes of its f32 elements), and a checksum of all of them."""
    data = path.read_bytes()
    size, = struct.unpack("<Q", data[:8])
    tensors, digest = {}, hashlib.sha256()
    for name, entry in sorted(json.loads(data[8:8 + size]).items()):
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        piece = data[8 + size + begin:8 + size + end]
        digest.update(name.encode() + piece)
        tensors[name] = entry["shape"], piece
    return tensors, digest.hexdigest()


def torch_losses(options, start, rates, mode):
    """mode: fp32; autocast; or bf16: parameters, activations and gradients in bf16, as FSDP's mixed precision does it
    and as DeepShard does."""
    import torch
    from torch.func import functional_call
    from torch_model import Decoder, Shape, adamw
    device = "cuda" if options.device == "gpu" else "cpu"
    torch.manual_seed(0)
    shape = Shape(options.layers, options.hidden, options.heads, options.heads, 4 * options.hidden, options.vocabulary)
    model = Decoder(shape, options.sequence).to(device)
    model.load({name: torch.frombuffer(bytearray(piece), dtype=torch.float32).view(extents)
                for name, (extents, piece) in start.items()})
    optimizer = adamw(model, LR)
    stream = torch.tensor(list(text().encode()) + [256])  # the byte tokenizer's
    t = options.sequence
    samples = (len(stream) - 1) // t
    losses = []
    for step in range(options.steps):
        picked = [sample_at(step * options.batch + i, samples) for i in range(options.batch)]
        ids = torch.stack([stream[i * t:i * t + t + 1] for i in picked]).to(device)
        for group in optimizer.param_groups:
            group["lr"] = rates[step]
        inputs, targets = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
        if mode == "bf16":
            loss = functional_call(model, {n: p.bfloat16() for n, p in model.named_parameters()}, (inputs, targets))
        else:
            with torch.autocast(device, dtype=torch.bfloat16, enabled=mode == "autocast"):
                loss = model(inputs, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        if sys.stderr.isatty():
            print(f"\rPyTorch {mode}: step {step + 1} \033[K", end="", file=sys.stderr)
    return losses


def check(parser, options):
    """What would only be found after minutes of training; returns the record of --against."""
    if not (options.bin / "ds-launch").exists():
        parser.error(f"--bin {options.bin}: no ds-launch there")
    if options.record and options.against:
        parser.error("--record runs PyTorch and --against needs none: give one of them")
    if options.record:
        try:
            options.record.open("a").close()
        except OSError as error:
            parser.error(f"--record: {error}")
    if not options.against:
        try:
            import torch  # noqa: F401
        except ImportError as error:
            raise SystemExit(f"error: {error}; run this with a python that has PyTorch, or compare --against a record")
        return None
    try:
        record = json.loads(options.against.read_text())
        shape = {name: getattr(options, name) for name in SHAPE}
        if record["shape"] != shape:
            raise ValueError(f"it was recorded for {record['shape']}, this is {shape}")
        for name in ("start", "torch", "device"):
            if not isinstance(record[name], str):
                raise ValueError(f"{name} is no text")
        for name in ("rates", "fp32", "bf16", "autocast"):
            numbers = record[name]
            if not isinstance(numbers, list) or len(numbers) != options.steps or not all(
                    isinstance(x, (int, float)) and math.isfinite(x) for x in numbers):
                raise ValueError(f"{name} is no list of {options.steps} numbers")
        if record["fp32"] == record["bf16"]:
            raise ValueError("fp32 and bf16 are the same: there is no spread to compare with")
    except (OSError, ValueError, TypeError, KeyError) as error:
        what = f"no {error}" if isinstance(error, KeyError) else error
        raise SystemExit(f"error: --against {options.against}: {what}; --record makes such a file")
    return record


def distance(a, b):
    return sum(abs(x - y) for x, y in zip(a, b, strict=True)) / len(a)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", type=pathlib.Path, metavar="FILE", help="write PyTorch's losses and the start's checksum")
    parser.add_argument("--against", type=pathlib.Path, metavar="FILE", help="compare with a record instead of running PyTorch")
    parser.add_argument("--device", choices=["cpu", "gpu"], default="gpu")
    parser.add_argument("--bin", type=pathlib.Path, help="where ds-launch is; default: of the bundle or build")
    for name, value, what in [("layers", 12, "blocks"), ("hidden", 768, "width"), ("heads", 12, "heads"),
                              ("vocabulary", 50257, "tokens (the text is bytes)"), ("sequence", 1024, "tokens a sample"),
                              ("batch", 8, "samples a step"), ("steps", 300, "optimizer steps")]:
        parser.add_argument(f"--{name}", type=int, default=value, help=f"{what}; default {value}")
    parser.add_argument("--fp8", action="store_true", help="ours with training.fp8 too, told beside")
    parser.add_argument("--show", action="store_true", help="print the losses of every tenth step")
    options = parser.parse_args()
    options.bin = options.bin or next((p for p in (ROOT / "bin", ROOT / "build/bin") if (p / "ds-launch").exists()), None)
    if not options.bin:
        parser.error("no ds-launch in bin/ or build/bin; give --bin")
    options.bin = options.bin.resolve()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # subprocess.run then ends what it runs
    record = check(parser, options)
    shape = {name: getattr(options, name) for name in SHAPE}

    with tempfile.TemporaryDirectory() as folder:
        side = Ours(options, pathlib.Path(folder))
        start, checksum = read_safetensors(side.start())
        bf16, rates = side.losses("bf16")
        fp32, _ = side.losses("fp32")
        fp8 = side.losses("fp8")[0] if options.fp8 else None
    if options.against:
        if record["start"] != checksum:
            raise SystemExit(f"error: {options.against} was recorded from another start (parameters, or their seed, changed)")
        if max(abs(a - b) for a, b in zip(record["rates"], rates, strict=True)) > 1e-12:
            raise SystemExit(f"error: {options.against} was recorded with other learning rates")
    else:
        import torch
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        gpu = torch.cuda.get_device_name() if options.device == "gpu" else "CPU"
        record = {"made_by": "scripts/bench/gpt2_losses.py", "torch": torch.__version__, "device": gpu, "shape": shape,
                  "start": checksum, "rates": rates}
        record |= {mode: torch_losses(options, start, rates, mode) for mode in ("fp32", "bf16", "autocast")}
    if options.record:
        for mode in ("fp32", "bf16", "autocast"):
            record[mode] = [round(loss, 6) for loss in record[mode]]
        lines = (f" {json.dumps(key)}: {json.dumps(value, separators=(',', ':'))}" for key, value in record.items())
        options.record.write_text("{\n" + ",\n".join(lines) + "\n}\n")

    spread = distance(record["bf16"], record["fp32"])
    print(f"GPT-2, {shape}: PyTorch {record['torch']} on {record['device']}")
    print(f"  losses: PyTorch fp32 {record['fp32'][0]:.4f} ... {record['fp32'][-1]:.4f}, bf16 ... {record['bf16'][-1]:.4f}; "
          f"ours fp32 {fp32[0]:.4f} ... {fp32[-1]:.4f}, bf16 ... {bf16[-1]:.4f}")
    if options.show:
        for i in range(0, options.steps, 10):
            print(f"  step {i + 1:4}  {record['fp32'][i]:.5f} {record['bf16'][i]:.5f}  {fp32[i]:.5f} {bf16[i]:.5f}"
                  + (f" {fp8[i]:.5f}" if fp8 else ""))
    failed = False
    print(f"  distance from PyTorch fp32: PyTorch bf16 {spread:.2e} (the spread), "
          f"autocast {distance(record['autocast'], record['fp32']):.2e}")
    for name, losses in (("fp32", fp32), ("bf16", bf16)):
        d = distance(losses, record["fp32"])
        failed |= not d <= spread
        print(f"    ours {name}: {d:.2e}, {d / spread:.2f} of it: {'within' if d <= spread else 'outside'}; "
              f"to PyTorch {name}: {distance(losses, record[name]):.2e}")
    if fp8:
        d = distance(fp8, record["fp32"])
        print(f"    ours fp8: {d:.2e}, {d / spread:.2f} of it; to ours bf16: {distance(fp8, bf16):.2e}, at most "
              f"{max(abs(x - y) for x, y in zip(fp8, bf16)):.2e}; losses ... {fp8[-1]:.4f}")
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
