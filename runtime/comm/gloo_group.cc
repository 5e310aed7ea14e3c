#include "runtime/comm/gloo_group.h"

#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstring>

#include "runtime/base/activity.h"
#include "runtime/comm/communicator.h"

namespace ds {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

/// Gloo closes all connections when a wait times out: for waits that must not.
constexpr milliseconds kForever = std::chrono::hours(24 * 365 * 10);
constexpr int kPairConnectFactor = 5;  ///< Gloo waits five of its time-outs for a connection

/// A process that dies loses all its connections at once, but news of them comes one by one, mixed with the news of
/// those that fail because of it. Time for all of it to arrive, so that the message holds the first cause.
constexpr milliseconds kSettle{50};

/// How long a rank that fails or leaves waits until its notes are written, before it closes the connections.
constexpr milliseconds kNotesWritten{200};

/// Part of the error of connections that closed because a wait of this process timed out.
constexpr const char* kClosedHere = "Application timeout caused pair closure";

// Slots: what a message is for. The low bits tell the kinds apart.
constexpr uint64_t kBell = 0, kNote = 1, kProbe = 4;
uint64_t DescriptionSlot(uint64_t call) { return call << 2 | 2; }

/// The slot of the bytes of a call. Different for different extents, so that unequal transfers never meet.
uint64_t PayloadSlot(uint64_t call, DType dtype, int64_t bytes) {
  const uint64_t extents = (static_cast<uint64_t>(bytes) * 16 + static_cast<uint64_t>(dtype)) * 0x9e3779b97f4a7c15u;
  return (call & 0xffffffffu) << 32 | (extents >> 34) << 2 | 3;
}

std::string Rank(int rank) { return "rank " + std::to_string(rank); }

/// Gloo's message without the place in Gloo's source: "Connection closed by peer [10.0.0.7]:4711".
std::string Plain(const std::exception& error) {
  const std::string text = error.what();
  const size_t place = text.find(".cc:"), end = text.find("] ");
  return place < end && end != std::string::npos ? text.substr(end + 2) : text;
}

std::string Lost(int peer, const std::string& why) { return "the connection to " + Rank(peer) + " was lost: " + why; }

/// Two descriptions of one call, seen from both of its ends.
bool Agree(const Operation& mine, int rank, const Operation& theirs, int peer) {
  if (!mine.point_to_point()) return mine == theirs;
  return Pairs(mine, theirs) && mine.peer == peer && theirs.peer == rank;
}

}  // namespace

std::shared_ptr<gloo::transport::Device> GlooDevice(const std::string& address) {
  struct sigaction current = {};
  if (sigaction(SIGPIPE, nullptr, &current) == 0 && current.sa_handler == SIG_DFL) std::signal(SIGPIPE, SIG_IGN);
  try {
    return gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr(address.c_str()));
  } catch (const std::exception& error) {
    throw RuntimeError("no data connections on address '" + address + "': " + error.what());
  }
}

struct GlooGroup::Note {
  enum Kind : char { leave = 1, fail, mismatch };  // never 0: its first byte is also what rings the bell
  Kind kind = leave;
  char text[1023] = {};
};

/// A message on its way, and what to do when it stays away.
struct GlooGroup::Transfer {
  int peer;
  bool receive;
  Buffer buffer;
};

/// The transfers of the call in progress, where Fail finds them.
class GlooGroup::InFlight {
 public:
  explicit InFlight(GlooGroup& group) : group_(group) {}
  ~InFlight() {
    std::lock_guard lock(group_.mutex_);
    group_.in_flight_ = nullptr;
  }
  void Begin() {
    std::lock_guard lock(group_.mutex_);
    group_.in_flight_ = &transfers;
  }
  Transfer& Add(int peer, bool receive, void* data, size_t bytes, uint64_t slot) {
    auto buffer = group_.context_->createUnboundBuffer(data, bytes);
    receive ? buffer->recv(peer, slot, 0, bytes) : buffer->send(peer, slot, 0, bytes);
    transfers.push_back({peer, receive, std::move(buffer)});
    return transfers.back();
  }
  std::vector<Transfer> transfers;

 private:
  GlooGroup& group_;
};

GlooGroup::GlooGroup(std::string stream, int rank, int size, std::shared_ptr<gloo::transport::Device> device,
                     Store& store, const std::string& prefix, milliseconds timeout, Observer observer)
    : stream_(std::move(stream)),
      rank_(rank),
      size_(size),
      timeout_(timeout),
      observer_(std::move(observer)),
      device_(std::move(device)),
      calls_(size, 0),
      own_note_(std::make_unique<Note>()),
      notes_(size),
      rings_(size, 0),
      left_(size, false) {
  Connect(store, prefix);
  watcher_ = std::thread([this] { Watch(); });
}

void GlooGroup::Connect(Store& store, const std::string& prefix) {
  const auto fail = [&](const std::string& why) {
    throw CommunicatorAborted(CommunicatorMessage(stream_, rank_, size_, "connect", why));
  };
  try {
    context_ = device_->createContext(rank_, size_);
    context_->setTimeout(std::max(timeout_ / kPairConnectFactor, milliseconds(1)));
    std::string addresses;  // of this rank's end of the connection to each peer, all equally long
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == rank_) continue;
      const std::vector<char> bytes = context_->createPair(peer)->address().bytes();
      addresses.append(bytes.begin(), bytes.end());
    }
    store.Set(prefix + std::to_string(rank_), addresses);
  } catch (const std::exception& error) {
    fail(Plain(error));
  }
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    try {
      const std::string theirs = store.Get(prefix + std::to_string(peer), timeout_);
      const size_t length = theirs.size() / (size_ - 1);
      const char* mine = theirs.data() + length * (rank_ > peer ? rank_ - 1 : rank_);
      context_->getPair(peer)->connect(std::vector<char>(mine, mine + length));
    } catch (const std::exception& error) {
      fail(Rank(peer) + ": " + Plain(error));
    }
  }
  try {
    ListenForNotes();
  } catch (const std::exception& error) {
    fail(Plain(error));
  }
}

void GlooGroup::ListenForNotes() {
  bell_ = context_->createUnboundBuffer(rings_.data(), rings_.size());
  note_buffers_.resize(size_);
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    note_buffers_[peer] = context_->createUnboundBuffer(&notes_[peer], sizeof(Note));
    note_buffers_[peer]->recv(peer, kNote, 0, sizeof(Note));
    bell_->recv(peer, kBell, peer, 1);
  }
}

GlooGroup::~GlooGroup() {
  bool failed;
  {
    std::lock_guard lock(mutex_);
    failed = failed_.has_value();
    if (!failed) failed_ = "this rank left the group";  // the watcher reports nothing from here on
  }
  if (!failed) {
    own_note_->kind = Note::leave;
    SendNotes(*own_note_);
  }
  bell_->abortWaitRecv();
  watcher_.join();
  if (!failed) CloseConnections();
}

void GlooGroup::SendNotes(const Note& note) {
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    try {
      // The peer waits for both since it connected, so they are written at once unless bytes are queued before them.
      for (const auto& [slot, bytes] : {std::pair{kNote, sizeof(Note)}, std::pair{kBell, size_t{1}}}) {
        Buffer buffer = context_->createUnboundBuffer(const_cast<Note*>(&note), bytes);
        buffer->send(peer, slot, 0, bytes);
        sent_notes_.push_back(std::move(buffer));
      }
    } catch (const std::exception&) {
      // The peer is gone: others are told.
    }
  }
  // A send is written once the peer's word that it waits was read here, a moment after connecting. Connections that
  // close before would take the note with them, and peers would see no more than a connection that broke.
  const auto deadline = steady_clock::now() + kNotesWritten;
  for (const Buffer& note : sent_notes_) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - steady_clock::now());
    try {
      note->waitSend(nullptr, std::max(left, milliseconds(1)));
    } catch (const std::exception&) {
      // The peer is gone, or does not read: it learns of the end from its connection.
    }
  }
}

void GlooGroup::CloseConnections() {
  try {
    // Nothing is ever sent to this buffer. The wait's time-out closes every connection and wakes every waiter.
    context_->createUnboundBuffer(nullptr, 0)->waitRecv(nullptr, milliseconds(0));
  } catch (const std::exception&) {
    // As meant.
  }
}

void GlooGroup::Fail(const std::string& reason, bool mismatch) noexcept {
  {
    std::lock_guard lock(mutex_);
    if (failed_) return;
    failed_ = reason;
    mismatched_ = mismatch;
  }
  if (observer_.failed) observer_.failed(reason);
  own_note_->kind = mismatch ? Note::mismatch : Note::fail;
  std::strncpy(own_note_->text, reason.c_str(), sizeof(own_note_->text) - 1);
  SendNotes(*own_note_);
  CloseConnections();
  std::lock_guard lock(mutex_);
  closed_ = true;
  if (in_flight_) {
    for (Transfer& transfer : *in_flight_)
      transfer.receive ? transfer.buffer->abortWaitRecv() : transfer.buffer->abortWaitSend();
  }
  changed_.notify_all();
}

void GlooGroup::Watch() {
  bool over = false;
  while (!over) {
    try {
      if (!bell_->waitRecv(nullptr, kForever)) break;  // this rank leaves
      over = ReadNotes();
    } catch (const std::exception&) {
      // A connection broke before its note came (one that closes after its peer left does not ring).
      std::this_thread::sleep_for(kSettle);
      if (!ReadNotes()) FindLost();
      over = true;
    }
  }
  std::lock_guard lock(mutex_);
  watch_over_ = true;
  changed_.notify_all();
}

bool GlooGroup::ReadNotes() {
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_ || Left(peer) || !std::atomic_ref<char>(rings_[peer]).load()) continue;
    note_buffers_[peer]->waitRecv(nullptr, kForever);  // returns at once: the note came before the bell
    const Note& note = notes_[peer];
    if (note.kind != Note::leave) {
      Fail(note.text, note.kind == Note::mismatch);
      return true;
    }
    {
      std::lock_guard lock(mutex_);
      left_[peer] = true;
    }
    if (observer_.left) observer_.left(peer);
  }
  return false;
}

void GlooGroup::FindLost() {
  std::string lost;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_ || Left(peer)) continue;
    try {
      bell_->send(peer, kProbe, 0, 0);  // throws what broke the connection; nobody receives it
    } catch (const std::exception& error) {
      const std::string why = Plain(error);
      if (why.find(kClosedHere) == std::string::npos) lost += (lost.empty() ? "" : "; ") + Lost(peer, why);
    }
  }
  if (!lost.empty()) Fail(lost);
}

bool GlooGroup::Left(int peer) {
  std::lock_guard lock(mutex_);
  return left_[peer];
}

void GlooGroup::Exchange(const Operation& operation, std::span<const Route> routes) {
  const WaitsForPeers waits;
  const auto deadline = steady_clock::now() + timeout_;
  ThrowIfFailed(operation);
  std::vector<Operation> theirs(routes.size());
  Operation mine = operation;
  InFlight in_flight(*this);
  in_flight.transfers.reserve(4 * routes.size());
  for (size_t i = 0; i < routes.size(); ++i) {
    const auto& [peer, out, in] = routes[i];
    const uint64_t call = calls_[peer]++;
    try {
      in_flight.Add(peer, true, &theirs[i], sizeof(Operation), DescriptionSlot(call));
      if (in.bytes() > 0) in_flight.Add(peer, true, in.data, in.bytes(), PayloadSlot(call, in.dtype, in.bytes()));
      in_flight.Add(peer, false, &mine, sizeof(Operation), DescriptionSlot(call));
      if (out.bytes() > 0) in_flight.Add(peer, false, out.data, out.bytes(), PayloadSlot(call, out.dtype, out.bytes()));
    } catch (const std::exception& error) {
      Interrupted(operation, peer, Plain(error));
    }
  }
  in_flight.Begin();
  ThrowIfFailed(operation);
  // Descriptions first: where they differ, the bytes never come.
  const auto wait = [&](bool descriptions) {
    for (const Transfer& transfer : in_flight.transfers) {
      const bool description = transfer.receive && transfer.buffer->size == sizeof(Operation) &&
                               transfer.buffer->ptr >= theirs.data() &&
                               transfer.buffer->ptr < theirs.data() + theirs.size();
      if (description == descriptions) Wait(operation, transfer, deadline);
    }
  };
  wait(true);
  for (size_t i = 0; i < routes.size(); ++i) {
    if (Agree(operation, rank_, theirs[i], routes[i].peer)) continue;
    Fail("the ranks' operations differ: " + Rank(rank_) + " asks for " + operation.str() + ", " + Rank(routes[i].peer) +
             " for " + theirs[i].str(),
         true);
    ThrowFailed(operation);
  }
  wait(false);
}

void GlooGroup::Wait(const Operation& operation, const Transfer& transfer, steady_clock::time_point deadline) {
  const auto left = std::max(std::chrono::ceil<milliseconds>(deadline - steady_clock::now()), milliseconds(1));
  try {
    if (transfer.receive ? transfer.buffer->waitRecv(nullptr, left) : transfer.buffer->waitSend(nullptr, left)) return;
  } catch (const std::exception& error) {
    if (steady_clock::now() < deadline) Interrupted(operation, transfer.peer, Plain(error));
    Fail(Rank(transfer.peer) + " did not come within " + std::to_string(timeout_.count()) + " ms");
  }
  ThrowFailed(operation);
}

void GlooGroup::Interrupted(const Operation& operation, int peer, const std::string& why) {
  bool left;
  {
    // The watcher may know better: a note of the peer, or the connection that broke first.
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(2), [&] { return failed_.has_value() || watch_over_ || left_[peer]; });
    left = left_[peer];
  }
  Fail(left ? Rank(peer) + " left the group" : Lost(peer, why));
  ThrowFailed(operation);
}

void GlooGroup::ThrowFailed(const Operation& operation) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return closed_; });
  const std::string message = CommunicatorMessage(stream_, rank_, size_, operation.str(), *failed_);
  if (mismatched_) throw RuntimeError(message);
  throw CommunicatorAborted(message);
}

void GlooGroup::ThrowIfFailed(const Operation& operation) {
  std::unique_lock lock(mutex_);
  if (!failed_) return;
  lock.unlock();
  ThrowFailed(operation);
}

}  // namespace ds
