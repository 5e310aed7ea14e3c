// MPI behind an interface of our own, in a shared library of its own, libds_mpi.so, that is opened where ranks were
// started by MPI: programs run where there is no MPI, and MPI is loaded where it is wanted alone.
//
// Of MPI only messages between two ranks are used, none of which waits: collectives are ours, so that every backend
// adds in one order, and so that a call ends when a peer does.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace ds {

/// Calls of one process's threads must come one at a time (MPI_THREAD_SERIALIZED).
class MpiLibrary {
 public:
  /// A message on its way; null: none.
  using Request = void*;

  virtual ~MpiLibrary() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int max_tag() const = 0;
  /// "Open MPI v4.1.4, ..."
  virtual std::string version() const = 0;

  /// Memory must stay until the message is done. `bytes` up to 1 GiB.
  virtual Request Send(const void* data, int64_t bytes, int peer, int tag) = 0;
  virtual Request Receive(void* data, int64_t bytes, int peer, int tag) = 0;
  /// Whether it is done; then the request is gone and null. A failure is told in `failure`, and the request is gone
  /// too.
  virtual bool Test(Request& request, std::string& failure) = 0;
  /// Gives a message up: it may still arrive.
  virtual void Cancel(Request& request) = 0;
  /// Whether a message of `tag` is there from any rank: its sender and size.
  virtual bool Probe(int tag, int& sender, int64_t& bytes) = 0;

  /// MPI_Finalize; waits for all ranks. Nothing may be called after it.
  virtual void Finalize() = 0;
};

/// Loads libds_mpi.so from beside the program and begins MPI (MPI_Init), which may end the process where the
/// environment does not tell of a launcher that it knows. Throws RuntimeError: it is not there (built without MPI),
/// cannot be loaded, or gives no thread support.
std::unique_ptr<MpiLibrary> OpenMpi();

}  // namespace ds
