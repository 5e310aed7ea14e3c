// Times the kernels of a training step.
#pragma once

#include "runtime/bench/budget.h"
#include "runtime/bench/peaks.h"
#include "runtime/bench/table.h"
#include "runtime/bench/timer.h"
#include "runtime/bench/work.h"
#include "runtime/plan/machine_file.h"

namespace ds {

/// Workspace that the kernels of `work` want on a GPU.
int64_t WorkspaceOf(const BenchWork& work);

/// A line of the table a kernel: matrix products and attention beside the device's peak, kernels that move memory
/// beside `peaks.memory_bytes`. Fills what the file holds of them: matmul, attention and, on a GPU, the fastest
/// algorithm of each product (matmul_choices) and the library's version. Other parts of `file` are left alone.
///
/// What the budget has no time for, or the device no memory, is told and left out. A kernel that fails is told too;
/// when the others are measured, and in the file, RuntimeError is thrown.
void MeasureKernels(BenchDevice& device, const BenchWork& work, const DevicePeaks& peaks, const Budget& budget,
                    BenchTable& table, MachineFile& file);

}  // namespace ds
