#include "runtime/plan/check_pieces.h"

namespace ds {

Pieces::Pieces(const ModelLayout& layout, const Plan& plan, const ResidentIndex& resident)
    : plan_(plan), newest_(plan.buffers.size()), stored_(plan.buffers.size()), staged_(plan.buffers.size(), -1) {
  for (size_t b = 0; b < plan.buffers.size(); ++b) {
    const Buffer& buffer = plan.buffers[b];
    home_.push_back(static_cast<int>(b));
    if (buffer.kind == BufferKind::resident)
      newest_[b].assign(layout.units[buffer.unit].buckets.size(), 0), stored_[b] = newest_[b];
    if (buffer.kind != BufferKind::staging) continue;
    switch (buffer.state) {
      case StateKind::working:
        home_[b] = resident.working[buffer.unit];
        break;
      case StateKind::master:
        home_[b] = resident.master[buffer.unit];
        break;
      case StateKind::moment1:
        home_[b] = resident.moment1[buffer.unit];
        break;
      case StateKind::moment2:
        home_[b] = resident.moment2[buffer.unit];
        break;
      case StateKind::gradient:
        home_[b] = resident.gradient[buffer.slot];
        break;
      case StateKind::none:
        break;
    }
  }
}

int64_t& Pieces::Version(int buffer, int bucket) {
  if (plan_.buffers[buffer].kind == BufferKind::staging) return staged_[buffer];
  return stored_[Canonical(buffer)][static_cast<size_t>(bucket)];
}

std::string Pieces::BeforeUse(const Use& use, int bucket) {
  const Buffer& buffer = plan_.buffers[use.buffer];
  if (buffer.kind != BufferKind::resident && buffer.kind != BufferKind::staging) return "";
  const int buckets = static_cast<int>(newest_[Canonical(home_[use.buffer])].size());
  std::string fault;
  for (int b = bucket < 0 ? 0 : bucket; b < (bucket < 0 ? buckets : bucket + 1); ++b) {
    int64_t& version = Version(use.buffer, b);
    int64_t& newest = Newest(use.buffer, b);
    if (use.access != Access::write && version != newest)
      fault = "reads " + buffer.name + ", which does not hold the newest of " + NameOf(home_[use.buffer]) + " bucket " +
              std::to_string(b);
    if (use.access != Access::read) version = ++newest;
  }
  return fault;
}

std::string Pieces::Move(int from, int to, int bucket) {
  const int64_t version = Version(from, bucket);
  Version(to, bucket) = version;
  if (home_[from] != home_[to] && Canonical(home_[from]) != Canonical(home_[to]))
    return "moves between " + NameOf(from) + " and " + NameOf(to) + ", which are not of one buffer";
  if (version == Newest(from, bucket)) return "";
  return "moves " + NameOf(from) + ", which does not hold the newest of " + NameOf(home_[from]) + " bucket " +
         std::to_string(bucket);
}

std::vector<std::string> Pieces::AtTheEnd() const {
  std::vector<std::string> faults;
  for (size_t b = 0; b < newest_.size(); ++b)
    for (size_t bucket = 0; bucket < newest_[b].size(); ++bucket)
      if (newest_[b][bucket] != stored_[b][bucket])
        faults.push_back("missing: Store " + plan_.buffers[b].name + " bucket " + std::to_string(bucket) +
                         ": its newest is not where it lives");
  return faults;
}

}  // namespace ds
