// Communicators among processes over TCP (Gloo).
#include <gloo/transport/device.h>

#include <map>
#include <mutex>

#include "runtime/comm/exchange_communicator.h"

namespace ds {
namespace {

/// What the communicators of one process share.
struct GlooWorld {
  GlooWorld(const GlooOptions& o, Store& s) : options(o), store(s) {}

  std::shared_ptr<gloo::transport::Device> Device() {
    std::lock_guard lock(mutex);
    if (!device) device = GlooDevice(options.interface_address);
    return device;
  }

  /// A prefix in the store for the n-th communicator of this name.
  std::string Prefix(const std::string& name) {
    std::lock_guard lock(mutex);
    return "gloo/" + name + "#" + std::to_string(made[name]++) + "/";
  }

  const GlooOptions options;
  Store& store;
  std::mutex mutex;
  std::shared_ptr<gloo::transport::Device> device;
  std::map<std::string, int> made;
};

class GlooCommunicator final : public ExchangeCommunicator {
 public:
  GlooCommunicator(std::shared_ptr<GlooWorld> world, const std::string& stream, int rank, int size)
      : world_(std::move(world)),
        group_(stream, rank, size, world_->Device(), world_->store, world_->Prefix(stream), world_->options.timeout) {
    Barrier();
  }

  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }

  void Abort(const std::string& reason) noexcept override {
    group_.Fail("rank " + std::to_string(rank()) + " aborted: " + reason);
  }

 private:
  void Exchange(const Operation& operation, std::span<const Route> routes) override {
    group_.Exchange(operation, routes);
  }
  const std::string& name() const override { return group_.stream(); }
  std::unique_ptr<Communicator> Subgroup(const std::string& name, int place, const std::vector<int>& members) override {
    return std::make_unique<GlooCommunicator>(world_, name, place, static_cast<int>(members.size()));
  }

  const std::shared_ptr<GlooWorld> world_;
  GlooGroup group_;
};

}  // namespace

CommunicatorFactory GlooFactory(const GlooOptions& options, Store& store) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size)
    throw std::invalid_argument("rank " + std::to_string(options.rank) + " of " + std::to_string(options.size));
  if (options.size == 1) return SingleRankFactory();
  return [world = std::make_shared<GlooWorld>(options, store)](const std::string& stream) {
    return std::make_unique<GlooCommunicator>(world, stream, world->options.rank, world->options.size);
  };
}

}  // namespace ds
