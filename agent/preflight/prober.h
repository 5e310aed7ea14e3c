// The node's part of the reachability check: it listens where its workers' data connections will bind, greets whoever
// connects, and dials others. What it says is random and means nothing: a stranger who connects learns nothing.
#pragma once

#include <functional>
#include <thread>

#include "proto/deepshard.pb.h"

namespace ds {

class Prober {
 public:
  using OnResult = std::function<void(deepshard::v1::ProbeResult)>;  ///< on a thread of its own
  explicit Prober(OnResult on_result) : on_result_(std::move(on_result)) {}
  ~Prober();  ///< stops listening and dialling
  Prober(const Prober&) = delete;
  Prober& operator=(const Prober&) = delete;

  /// Listens at `address` (numeric), on a port that the system chooses. Once.
  deepshard::v1::ProbeListening Listen(const std::string& address);
  /// Dials all peers at once, for dial.seconds at most, and tells. Once.
  void Dial(const deepshard::v1::ProbeDial& dial);

 private:
  OnResult on_result_;
  int listen_fd_ = -1, stop_fd_ = -1;
  std::thread listener_, dialler_;
};

}  // namespace ds
