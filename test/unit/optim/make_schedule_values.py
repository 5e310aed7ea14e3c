#!/usr/bin/env python3
"""Writes schedule_values.h from DeepSpeed's own schedulers: make_schedule_values.py DEEPSPEED_CHECKOUT > schedule_values.h

Loads deepspeed/runtime/lr_schedules.py alone, with stand-ins for what it imports, so neither torch nor DeepSpeed need be
installed. Each schedule runs as DeepSpeed's engine runs it: the optimizer steps, then the scheduler.
"""
import logging
import pathlib
import sys
import types

STEPS = 24
LR = 0.003


class Optimizer:
    def __init__(self):
        self.param_groups = [{"lr": LR, "betas": (0.9, 0.999)}]
        self.defaults = {"lr": LR, "betas": (0.9, 0.999)}


def load(checkout):
    def module(name, **values):
        made = types.ModuleType(name)
        made.__dict__.update(values)
        sys.modules[name] = made

    logger = logging.getLogger("quiet")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    module("torch", Tensor=type("Tensor", (), {}), is_tensor=lambda x: False, tensor=lambda x: x)
    module("torch.optim", Optimizer=Optimizer)
    module("deepspeed")
    module("deepspeed.utils", logger=logger)
    path = pathlib.Path(checkout, "deepspeed/runtime/lr_schedules.py")
    schedules = types.ModuleType("lr_schedules")
    exec(compile(path.read_text(), str(path), "exec"), schedules.__dict__)
    return schedules


CASES = [
    ("lr_range_test", "LRRangeTest", dict(lr_range_test_min_lr=1e-4, lr_range_test_step_size=5, lr_range_test_step_rate=2.0)),
    ("lr_range_test", "LRRangeTest", dict(lr_range_test_min_lr=1e-4, lr_range_test_step_size=5, lr_range_test_step_rate=2.0,
                                          lr_range_test_staircase=True)),
    ("one_cycle", "OneCycle", dict(cycle_min_lr=1e-4, cycle_max_lr=1e-2, cycle_first_step_size=6)),
    ("one_cycle", "OneCycle", dict(cycle_min_lr=1e-4, cycle_max_lr=1e-2, cycle_first_step_size=5, cycle_second_step_size=8,
                                   decay_step_size=2, decay_lr_rate=0.5, decay_mom_rate=0.02, cycle_min_mom=0.85,
                                   cycle_max_mom=0.95)),
    ("one_cycle", "OneCycle", dict(cycle_min_lr=1e-4, cycle_max_lr=1e-2, cycle_first_step_size=8, cycle_first_stair_count=3,
                                   cycle_second_stair_count=2, cycle_momentum=False)),
    ("warmup_lr", "WarmupLR", dict(warmup_min_lr=1e-5, warmup_max_lr=1e-3, warmup_num_steps=7)),
    ("warmup_lr", "WarmupLR", dict(warmup_min_lr=1e-5, warmup_max_lr=1e-3, warmup_num_steps=7, warmup_type="linear")),
    ("warmup_decay_lr", "WarmupDecayLR", dict(total_num_steps=18, warmup_min_lr=1e-5, warmup_max_lr=1e-3,
                                              warmup_num_steps=7)),
    ("warmup_decay_lr", "WarmupDecayLR", dict(total_num_steps=18, warmup_max_lr=1e-3, warmup_num_steps=1,
                                              warmup_type="linear")),
    ("warmup_cosine_lr", "WarmupCosineLR", dict(total_num_steps=20, warmup_min_ratio=0.1, warmup_num_steps=6,
                                                cos_min_ratio=0.05)),
    ("warmup_cosine_lr", "WarmupCosineLR", dict(total_num_steps=20, warmup_num_steps=6, warmup_type="linear")),
]


def number(value):
    if value in ("log", "linear"):
        value = {"log": 0, "linear": 1}[value]
    return repr(float(value))


def main():
    schedules = load(sys.argv[1])
    print("// Written by make_schedule_values.py from DeepSpeed's lr_schedules.py. Rates of optimizer steps 1, 2, ...")
    print("#pragma once\n\n#include <map>\n#include <string>\n#include <vector>\n")
    print('#include "runtime/job/job_spec.h"\n\nnamespace ds {\n')
    print("struct ScheduleCase {\n  SchedulerKind kind;\n  std::map<std::string, double> parameters;\n"
          "  std::vector<double> lr, beta1, beta2;  // betas: as Adam with (0.9, 0.999) ends up with\n};\n")
    print(f"inline constexpr double kOptimizerLr = {LR!r};\n")
    print("inline const std::vector<ScheduleCase> kScheduleCases = {")
    for kind, name, parameters in CASES:
        optimizer = Optimizer()
        scheduler = getattr(schedules, name)(optimizer, **parameters)
        lr, beta1, beta2 = [], [], []
        for _ in range(STEPS):
            group = optimizer.param_groups[0]
            lr.append(repr(float(group["lr"])))
            beta1.append(repr(float(group["betas"][0])))
            beta2.append(repr(float(group["betas"][1])))
            scheduler.step()
        pairs = ", ".join('{"%s", %s}' % (k, number(v)) for k, v in parameters.items())
        print(f"    {{SchedulerKind::{kind},\n     {{{pairs}}},")
        for values, end in ((lr, ","), (beta1, ","), (beta2, "},")):
            print("     {" + ", ".join(values) + "}" + end)
    print("};\n\n}  // namespace ds")


main()
