// What two programs of the control plane must share before they talk.
#pragma once

#include <cstdint>

namespace ds {

constexpr uint32_t kProtocolVersion = 1;

/// The build: the project's version. Programs of one job come from one build.
const char* BuildVersion();

/// No message of the control plane is larger. Log lines are cut, batches split, well below.
constexpr int kMaxMessageBytes = 16 << 20;

/// Deadline of a unary call that does not wait for anybody else.
constexpr int kCallSeconds = 20;

}  // namespace ds
