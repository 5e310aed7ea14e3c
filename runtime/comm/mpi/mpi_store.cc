#include <algorithm>
#include <cstring>
#include <thread>

#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/comm/mpi/mpi_world.h"

namespace ds {
namespace {

constexpr int kStoreTag = 1;
constexpr auto kPoll = std::chrono::microseconds(500);
constexpr auto kLastSends = std::chrono::seconds(2);

}  // namespace

int MpiWorld::NewTag() {
  std::lock_guard lock(mutex_);
  // Numbers that this rank alone gives out, behind the store's.
  const int64_t tag = kStoreTag + 1 + static_cast<int64_t>(tags_++) * mpi_->size() + mpi_->rank();
  if (tag > mpi_->max_tag())
    throw RuntimeError("MPI has no tag left for another communicator (at most " + std::to_string(mpi_->max_tag()) +
                       ")");
  return static_cast<int>(tag);
}

MpiStore::~MpiStore() {
  std::lock_guard lock(mutex_);
  const auto until = std::chrono::steady_clock::now() + kLastSends;
  while (!outgoing_.empty() && std::chrono::steady_clock::now() < until) {
    Progress();
    std::this_thread::sleep_for(kPoll);
  }
  for (Outgoing& sent : outgoing_) world_.Do([&](MpiLibrary& mpi) { mpi.Cancel(sent.request); });
}

void MpiStore::Set(const std::string& key, const std::string& value) {
  const uint32_t length = static_cast<uint32_t>(key.size());
  auto bytes = std::make_shared<std::string>(reinterpret_cast<const char*>(&length), sizeof length);
  *bytes += key + value;
  std::lock_guard lock(mutex_);
  values_[key] = value;
  for (int step = 1; step < world_.size(); ++step) {
    const int peer = (world_.rank() + step) % world_.size();
    outgoing_.push_back({bytes, world_.Do([&](MpiLibrary& mpi) {
                           return mpi.Send(bytes->data(), static_cast<int64_t>(bytes->size()), peer, kStoreTag);
                         })});
  }
  Progress();
}

void MpiStore::Progress() {
  int sender = 0;
  int64_t size = 0;
  std::string failure;
  while (world_.Do([&](MpiLibrary& mpi) { return mpi.Probe(kStoreTag, sender, size); })) {
    std::string bytes(static_cast<size_t>(size), '\0');
    auto request = world_.Do([&](MpiLibrary& mpi) { return mpi.Receive(bytes.data(), size, sender, kStoreTag); });
    while (!world_.Do([&](MpiLibrary& mpi) { return mpi.Test(request, failure); })) std::this_thread::yield();
    uint32_t length = 0;
    if (!failure.empty() || bytes.size() < sizeof length)
      throw RuntimeError("rendezvous over MPI: rank " + std::to_string(sender) + ": " + failure);
    std::memcpy(&length, bytes.data(), sizeof length);
    if (bytes.size() < sizeof length + length) throw RuntimeError("rendezvous over MPI: a broken message");
    values_[bytes.substr(sizeof length, length)] = bytes.substr(sizeof length + length);
  }
  std::erase_if(outgoing_, [&](Outgoing& sent) {
    return world_.Do([&](MpiLibrary& mpi) { return mpi.Test(sent.request, failure); });
  });
}

bool MpiStore::Find(const std::string& key, std::string& value) {
  std::lock_guard lock(mutex_);
  Progress();
  auto it = values_.find(key);
  if (it == values_.end()) return false;
  value = it->second;
  return true;
}

std::string MpiStore::Get(const std::string& key, std::chrono::milliseconds timeout) {
  const auto until = std::chrono::steady_clock::now() + timeout;
  std::string value;
  while (!Find(key, value)) {
    if (std::chrono::steady_clock::now() >= until) {
      throw RuntimeError("rendezvous: nobody left " + key + " within " +
                         DurationText(static_cast<double>(timeout.count()) * 1e-3));
    }
    std::this_thread::sleep_for(kPoll);
  }
  return value;
}

}  // namespace ds
