// The connections of one group of processes, over Gloo's TCP transport.
//
// Only Gloo's point-to-point layer is used (transport contexts, unbound buffers); collectives are ours. Every call
// goes through Exchange: with each peer that it concerns a rank swaps the description of the call, and the bytes. The
// n-th call between two ranks on either side is the n-th on the other, so a mismatch is found and named.
//
// What Gloo leaves to us (version of 2022 and later):
// - A transfer whose bytes are half through is not told when its connection breaks; only transfers that have not begun
//   are. So each connection carries a receive that never begins (a note from the peer), and a thread that waits
//   for one of them to break, which then interrupts the calls in progress.
// - A buffer that is destroyed while its connection lives and its transfer is half through makes Gloo's loop spin:
//   connections are closed before the buffers of a failed call go.
// - A message longer than its receive ends the process: the slot of the bytes depends on what is exchanged, so that
//   unequal transfers never meet.
// - Closing a connection does not wake local waiters, a wait that times out does (and closes all connections).
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "runtime/comm/operation.h"
#include "runtime/comm/store.h"

namespace gloo::transport {
class Context;
class Device;
class UnboundBuffer;
}  // namespace gloo::transport

namespace ds {

/// Where data connections are made: an address of this machine. Throws RuntimeError that names it. Ignores SIGPIPE in
/// this process where it has no handler: Gloo writes to its sockets with plain writev, and a peer's death must be an
/// error, not the signal that ends us.
std::shared_ptr<gloo::transport::Device> GlooDevice(const std::string& address);

class GlooGroup {
 public:
  /// Told at once what befalls the group, by any thread that may hold locks of its own; must not throw. For those who
  /// wait for their peers elsewhere than in Exchange.
  struct Observer {
    std::function<void(const std::string& reason)> failed;  ///< as Fail, here or at a peer; once
    std::function<void(int peer)> left;
  };

  /// What a call moves between this rank and a peer. Either part may be empty.
  struct Route {
    int peer = 0;
    Tensor out, in;
  };

  /// Connects to all peers: collective. `prefix` is the same on all ranks and used once in `store`. Throws
  /// CommunicatorAborted when a peer does not come within `timeout`.
  GlooGroup(std::string stream, int rank, int size, std::shared_ptr<gloo::transport::Device> device, Store& store,
            const std::string& prefix, std::chrono::milliseconds timeout, Observer observer = {});
  /// Tells the peers that this rank leaves: calls that need it fail from now on, others go on.
  ~GlooGroup();
  GlooGroup(const GlooGroup&) = delete;
  GlooGroup& operator=(const GlooGroup&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& stream() const { return stream_; }

  /// Swaps the description of the call and the routes' bytes with the routes' peers; returns when all have arrived and
  /// all outgoing bytes may be overwritten.
  void Exchange(const Operation& operation, std::span<const Route> routes);

  /// Breaks the group, once: tells the peers, closes the connections, interrupts the call in progress. `mismatch`:
  /// ranks ask for different things, which is an error of its own.
  void Fail(const std::string& reason, bool mismatch = false) noexcept;

 private:
  struct Note;
  struct Transfer;
  class InFlight;
  using Buffer = std::unique_ptr<gloo::transport::UnboundBuffer>;

  void Connect(Store& store, const std::string& prefix);
  void ListenForNotes();
  void Watch();
  /// Reads the notes that arrived. True: one of them failed the group.
  bool ReadNotes();
  /// Fails the group and names the peers whose connections broke.
  void FindLost();
  bool Left(int peer);
  void SendNotes(const Note& note);
  void CloseConnections();

  void Wait(const Operation& operation, const Transfer& transfer, std::chrono::steady_clock::time_point deadline);
  [[noreturn]] void Interrupted(const Operation& operation, int peer, const std::string& why);
  /// Waits until the connections are closed, then throws.
  [[noreturn]] void ThrowFailed(const Operation& operation);
  void ThrowIfFailed(const Operation& operation);

  const std::string stream_;
  const int rank_, size_;
  const std::chrono::milliseconds timeout_;
  const Observer observer_;
  const std::shared_ptr<gloo::transport::Device> device_;
  std::shared_ptr<gloo::transport::Context> context_;
  std::vector<uint64_t> calls_;  ///< a peer: calls begun with it

  std::unique_ptr<Note> own_note_;
  std::vector<Note> notes_;           ///< a peer: its one note, as it arrives
  std::vector<Buffer> note_buffers_;  ///< receive notes_
  std::vector<Buffer> sent_notes_;
  std::vector<char> rings_;  ///< a peer: not 0 once its note is here; a byte that recv(2) writes is never torn
  Buffer bell_;              ///< receives rings_: wakes the watcher

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Transfer>* in_flight_ = nullptr;  ///< of the call in progress
  std::vector<bool> left_;                      ///< a peer: it left in peace
  std::optional<std::string> failed_;
  bool mismatched_ = false;
  bool closed_ = false;      ///< connections, after a failure
  bool watch_over_ = false;  ///< nothing more will be learned from notes
  std::thread watcher_;
};

}  // namespace ds
