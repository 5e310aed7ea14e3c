// A checkpoint's parameters as one safetensors file, whole and by name, for other programs.
#pragma once

#include <filesystem>

#include "kernels/dtype.h"

namespace ds {

/// Writes the parameters of the checkpoint `folder` to `output` as `dtype` (f32, or bf16 rounded to nearest even),
/// streamed, under a temporary name until it is whole. Throws RuntimeError: damaged; UsageError: `output` exists and
/// not `force`, is inside a checkpoint, another dtype. Returns the number of elements.
int64_t ExportParameters(const std::filesystem::path& folder, const std::filesystem::path& output, DType dtype,
                         bool force);

}  // namespace ds
