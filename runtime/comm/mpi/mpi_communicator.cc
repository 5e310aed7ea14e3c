// Communicators among processes over MPI.
//
// Each call sends its description to the peers that it concerns, then its bytes; both arrive in order, since one pair
// of ranks uses one tag of one MPI communicator in a group. Where descriptions differ the group fails, and both are
// named.
//
// Messages of a call that failed may still be on their way when it throws. MPI moves them only within calls of MPI,
// and a group that failed makes none.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "runtime/base/error.h"
#include "runtime/comm/exchange_communicator.h"
#include "runtime/comm/mpi/mpi_world.h"

namespace ds {
namespace {

using std::chrono::steady_clock;

constexpr int64_t kMaxMessage = int64_t{1} << 30;  ///< bytes: MPI counts in int
/// A wait spins, then yields, then sleeps: peers on the same cores must get on.
constexpr int kSpins = 200, kYields = 200;
constexpr auto kSleep = std::chrono::microseconds(30);

std::string Rank(int rank) { return "rank " + std::to_string(rank); }

bool Agree(const Operation& mine, int rank, const Operation& theirs, int peer) {
  if (!mine.point_to_point()) return mine == theirs;
  return Pairs(mine, theirs) && mine.peer == peer && theirs.peer == rank;
}

/// What the communicators of one process share.
struct Shared {
  Shared(const MpiOptions& o, MpiWorld& w, Store& s) : options(o), world(w), store(s) {}

  std::shared_ptr<gloo::transport::Device> Device() {
    std::lock_guard lock(mutex);
    if (!device) device = GlooDevice(options.interface_address);
    return device;
  }
  std::string Prefix(const std::string& name) {
    std::lock_guard lock(mutex);
    return "mpi/" + name + "#" + std::to_string(made[name]++) + "/";
  }

  const MpiOptions options;
  MpiWorld& world;
  Store& store;
  std::mutex mutex;
  std::shared_ptr<gloo::transport::Device> device;
  std::map<std::string, int> made;
};

class MpiCommunicator final : public ExchangeCommunicator {
 public:
  /// `members`: MPI's rank of each rank of the group.
  MpiCommunicator(std::shared_ptr<Shared> shared, const std::string& stream, int rank, std::vector<int> members)
      : shared_(std::move(shared)),
        members_(std::move(members)),
        left_(members_.size()),
        control_(stream, rank, static_cast<int>(members_.size()), shared_->Device(), shared_->store,
                 shared_->Prefix(stream), shared_->options.timeout,
                 {[this](const std::string&) { failed_ = true; }, [this](int peer) { left_[peer] = true; }}) {
    AgreeOnTag();
    Barrier();
  }

  int rank() const override { return control_.rank(); }
  int size() const override { return control_.size(); }

  void Abort(const std::string& reason) noexcept override { control_.Fail(Rank(rank()) + " aborted: " + reason); }

 private:
  /// A message, or what is left of one in several parts.
  struct Transfer {
    int peer;
    bool description, receive;
    MpiLibrary::Request request;
  };

  /// The group's first rank gives its messages a tag.
  void AgreeOnTag() {
    int64_t tag = rank() == 0 ? shared_->world.NewTag() : 0;
    const Tensor value = Tensor::Of(&tag, Shape{1});
    const Operation operation{Collective::broadcast, value.dtype, 1, 0};
    const Tensor nothing{nullptr, DType::u8, Shape{0}};
    std::vector<Route> routes;
    for (int peer = 1; rank() == 0 && peer < size(); ++peer) routes.push_back({peer, value, nothing});
    if (rank() != 0) routes.push_back({0, nothing, value});
    control_.Exchange(operation, routes);
    tag_ = static_cast<int>(tag);
  }

  const std::string& name() const override { return control_.stream(); }

  std::unique_ptr<Communicator> Subgroup(const std::string& name, int place, const std::vector<int>& members) override {
    std::vector<int> of_mpi;
    for (int r : members) of_mpi.push_back(members_[r]);
    return std::make_unique<MpiCommunicator>(shared_, name, place, std::move(of_mpi));
  }

  void Exchange(const Operation& operation, std::span<const Route> routes) override {
    const auto deadline = steady_clock::now() + shared_->options.timeout;
    if (failed_) ThrowFailed(operation);
    Operation mine = operation;
    std::vector<Operation> theirs(routes.size());
    std::vector<Transfer> transfers;
    shared_->world.Do([&](MpiLibrary& mpi) {
      for (size_t i = 0; i < routes.size(); ++i) {
        const int peer = routes[i].peer, to = members_[peer];
        transfers.push_back({peer, true, true, mpi.Receive(&theirs[i], sizeof(Operation), to, tag_)});
        ForParts(routes[i].in, [&](char* data, int64_t bytes) {
          transfers.push_back({peer, false, true, mpi.Receive(data, bytes, to, tag_)});
        });
        transfers.push_back({peer, true, false, mpi.Send(&mine, sizeof(Operation), to, tag_)});
        ForParts(routes[i].out, [&](char* data, int64_t bytes) {
          transfers.push_back({peer, false, false, mpi.Send(data, bytes, to, tag_)});
        });
      }
    });
    try {
      // Descriptions first: where they differ, the bytes never come.
      Wait(operation, transfers, true, deadline);
      for (size_t i = 0; i < routes.size(); ++i) {
        if (Agree(operation, rank(), theirs[i], routes[i].peer)) continue;
        control_.Fail("the ranks' operations differ: " + Rank(rank()) + " asks for " + operation.str() + ", " +
                          Rank(routes[i].peer) + " for " + theirs[i].str(),
                      true);
        ThrowFailed(operation);
      }
      Wait(operation, transfers, false, deadline);
    } catch (...) {
      // Receives first of all: nothing more may be written to memory of the caller's.
      shared_->world.Do([&](MpiLibrary& mpi) {
        for (Transfer& transfer : transfers) mpi.Cancel(transfer.request);
      });
      throw;
    }
  }

  template <class Body>
  static void ForParts(const Tensor& tensor, Body body) {
    for (int64_t at = 0; at < tensor.bytes(); at += kMaxMessage) {
      body(static_cast<char*>(tensor.data) + at, std::min(kMaxMessage, tensor.bytes() - at));
    }
  }

  /// Until the descriptions that are awaited, or all messages, are done.
  void Wait(const Operation& operation, std::vector<Transfer>& transfers, bool descriptions,
            steady_clock::time_point deadline) {
    std::string failure;
    int late = 0;
    for (int round = 0;; ++round) {
      const Transfer* waiting = nullptr;
      shared_->world.Do([&](MpiLibrary& mpi) {
        for (Transfer& transfer : transfers) {
          if (!transfer.request || mpi.Test(transfer.request, failure)) {
            if (!failure.empty()) break;
            continue;
          }
          if (!descriptions || (transfer.description && transfer.receive)) waiting = &transfer;
        }
      });
      if (!failure.empty()) {
        // Unequal lengths, which their descriptions tell, or a peer that MPI lost, which its connection tells.
        AwaitReason();
        control_.Fail("MPI: " + failure);
        ThrowFailed(operation);
      }
      if (!waiting) return;
      if (failed_) ThrowFailed(operation);
      if (left_[waiting->peer] && ++late > kLastMessages) {
        control_.Fail(Rank(waiting->peer) + " left the group");
        ThrowFailed(operation);
      }
      if (round < kSpins) continue;
      if (steady_clock::now() >= deadline) {
        control_.Fail(Rank(waiting->peer) + " did not come within " + std::to_string(shared_->options.timeout.count()) +
                      " ms");
        ThrowFailed(operation);
      }
      round < kSpins + kYields ? std::this_thread::yield() : std::this_thread::sleep_for(kSleep);
    }
  }

  /// A moment for the connections to tell what happened.
  void AwaitReason() const {
    const auto until = steady_clock::now() + std::chrono::milliseconds(300);
    while (!failed_ && steady_clock::now() < until) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }

  /// The control group throws what befell it.
  [[noreturn]] void ThrowFailed(const Operation& operation) {
    control_.Exchange(operation, {});
    throw CommunicatorAborted(
        CommunicatorMessage(control_.stream(), rank(), size(), operation.str(), "the group failed"));
  }

  /// Polls after a peer left until its last messages must have arrived.
  static constexpr int kLastMessages = 2000;

  const std::shared_ptr<Shared> shared_;
  const std::vector<int> members_;
  int tag_ = 0;
  std::atomic<bool> failed_{false};
  std::vector<std::atomic<bool>> left_;  ///< a peer: it left in peace
  GlooGroup control_;                    // last: its thread uses the above
};

}  // namespace

CommunicatorFactory MpiFactory(const MpiOptions& options, MpiWorld& world, Store& store) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size || options.size > world.size() ||
      options.rank != world.rank())
    throw std::invalid_argument("rank " + std::to_string(options.rank) + " of " + std::to_string(options.size) +
                                " in MPI's world, where it is rank " + std::to_string(world.rank()) + " of " +
                                std::to_string(world.size()));
  if (options.size == 1) return SingleRankFactory();
  return [shared = std::make_shared<Shared>(options, world, store)](const std::string& stream) {
    std::vector<int> members(shared->options.size);
    for (int r = 0; r < shared->options.size; ++r) members[r] = r;
    return std::make_unique<MpiCommunicator>(shared, stream, shared->options.rank, std::move(members));
  };
}

}  // namespace ds
