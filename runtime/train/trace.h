// The actions of a profiled step as a Chrome trace (chrome://tracing, ui.perfetto.dev), one track a stream.
#pragma once

#include <filesystem>

#include "runtime/exec/timeline.h"
#include "runtime/model/layout.h"

namespace ds {

void WriteTrace(const std::filesystem::path& path, const ModelLayout& layout, const Plan& plan,
                const Timeline& timeline);

}  // namespace ds
