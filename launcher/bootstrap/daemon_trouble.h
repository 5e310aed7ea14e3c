// Why a daemon cannot be reached: gRPC says little of it, so it is asked again by hand.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/site/site.h"

namespace ds {

/// Dials HOST:PORT and looks at what answers, for some seconds at most: no such host, nothing listening, no answer,
/// another protocol, another site's identity, another node's or an expired certificate. Text for people, with what to
/// do. `what_failed`: what is told where nothing of this is found.
std::string DaemonTrouble(const std::string& host, uint16_t port, const Identity& own, const std::string& what_failed);

}  // namespace ds
