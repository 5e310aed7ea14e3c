// What a service tells systemd of itself (sd_notify(3), Type=notify).
#pragma once

#include <string>

namespace ds {

/// Sends `state` ("READY=1", "STOPPING=1", "STATUS=...") to $NOTIFY_SOCKET; does nothing where there is none.
void NotifyServiceManager(const std::string& state);

}  // namespace ds
