// The order that gRPC gives our callbacks, said in our own code as well.
#pragma once

#include <atomic>

namespace ds {

/// What one thread wrote before Give() is seen by another after Take().
///
/// gRPC runs a callback on any of its threads, after whatever started the call. It keeps that order by atomics inside
/// of its libraries, which the thread sanitizer cannot see where they are not built with it: each callback would look
/// like a race with its caller. So whoever starts what a callback will follow calls Give(), and the callback begins
/// with Take(): what is reported then is a race of ours. Kept as a member of the object that gRPC calls, since captures
/// of a lambda would be read before any Take().
///
/// It costs nothing that could be measured: an atomic addition a call, beside a system call and a message encoded.
class HandOver {
 public:
  void Give() { given_.fetch_add(1, std::memory_order_release); }
  void Take() const { (void)given_.load(std::memory_order_acquire); }

 private:
  std::atomic<unsigned> given_{0};  ///< an addition keeps earlier ones in its release sequence: Take() sees all givers
};

}  // namespace ds
