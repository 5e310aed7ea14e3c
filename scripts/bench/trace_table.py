#!/usr/bin/env python3
"""Prints where a step went, by kind of action, from a trace that training.profile_steps wrote.

    scripts/bench/trace_table.py RUN/profile/step-8-rank-0.json...

A line a kind of action on the compute stream (layers and micro-batches together): how many, their time, its share of
the step, and the rate of the plan's FLOPs. `between` is the time in which the stream waited between two actions. Then
the other streams, whose time is beside the compute stream's.
"""
import argparse
import collections
import json
import os
import pathlib
import re
import sys


def kind(name):
    name = re.sub(r"^\d+ ", "", name)
    name = re.sub(r"\blayer\d+", "layer", name)
    return re.sub(r" (mb|bucket |bucket)\d+", "", name)


def table(title, events):
    rows = []
    streams = {e["tid"]: e["args"]["name"] for e in events if e.get("name") == "thread_name"}
    actions = [e for e in events if e["ph"] == "X"]
    for tid, stream in sorted(streams.items()):
        own = sorted((e for e in actions if e["tid"] == tid), key=lambda e: e["ts"])
        if not own:
            continue
        whole = max(own[-1]["ts"] + own[-1]["dur"] - own[0]["ts"], 1e-9)
        kinds = collections.defaultdict(lambda: [0, 0.0, 0.0])
        for event in own:
            row = kinds[kind(event["name"])]
            row[0] += 1
            row[1] += event["dur"]
            row[2] += event["args"].get("flops", 0)
        between = whole - sum(row[1] for row in kinds.values())
        rows.append(f"{title}, {stream}: {whole / 1e3:.2f} ms, {between / 1e3:.2f} ms between {len(own)} actions")
        for name, (count, microseconds, flops) in sorted(kinds.items(), key=lambda item: -item[1][1]):
            rate = f"{flops / microseconds / 1e3:10.1f} GFLOP/s" if flops and microseconds > 0 else ""
            rows.append(f"  {name:42} {count:5} {microseconds / 1e3:9.2f} ms {100 * microseconds / whole:5.1f}%  {rate}")
    if not rows:
        raise ValueError("it has no actions")
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="+", type=pathlib.Path, metavar="TRACE")
    for path in parser.parse_args().traces:
        try:
            text = path.read_text(errors="replace")
        except OSError as error:
            raise SystemExit(f"error: {error}")
        try:
            rows = table(path.name, json.loads(text)["traceEvents"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SystemExit(f"error: {path}: not a trace of training.profile_steps: {error!r}")
        print("\n".join(rows), flush=True)


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has seen enough
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(f"error: cannot print: {error}")
