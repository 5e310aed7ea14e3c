#include "agent/dial.h"

#include <chrono>
#include <thread>
#include <vector>

#include "proto/version.h"
#include "runtime/base/error.h"

namespace ds {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kStart = std::chrono::milliseconds(150);  // before the next address is tried as well
constexpr auto kLook = std::chrono::milliseconds(5);

std::vector<std::string> Split(const std::string& addresses) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= addresses.size();) {
    const size_t end = std::min(addresses.find(',', begin), addresses.size());
    if (end > begin) parts.push_back(addresses.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace

Dialled DialFirst(const std::string& addresses, const std::string& server_name, const TlsIdentity& identity,
                  double silence_seconds, const std::atomic<bool>& cancelled) {
  const std::vector<std::string> candidates = Split(addresses);
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  const Clock::time_point began = Clock::now(), until = began + std::chrono::seconds(kCallSeconds);
  while (Clock::now() < until && !cancelled) {
    if (channels.size() < candidates.size() && Clock::now() >= began + kStart * channels.size()) {
      channels.push_back(SecureChannel(candidates[channels.size()], server_name, identity, silence_seconds));
    }
    for (size_t i = 0; i < channels.size(); ++i) {
      if (channels[i]->GetState(/*try_to_connect=*/true) == GRPC_CHANNEL_READY) return {channels[i], candidates[i]};
    }
    std::this_thread::sleep_for(kLook);
  }
  if (cancelled) throw Error(ExitCode::preflight, "told to end before the launcher at " + addresses + " was reached");
  throw Error(ExitCode::preflight, "the launcher could not be reached at " + addresses + " within " +
                                       std::to_string(kCallSeconds) +
                                       " s: a firewall, or the wrong network? (launch.interface chooses one)");
}

}  // namespace ds
