// Follows copies of state between tiers: which buffer holds the newest of each bucket's piece. Private to runtime/plan.
#pragma once

#include <string>
#include <vector>

#include "runtime/plan/passes.h"

namespace ds {

class Pieces {
 public:
  Pieces(const ModelLayout& layout, const Plan& plan, const ResidentIndex& resident);

  /// The resident buffer that a staging buffer is a piece of; any other buffer itself.
  int Home(int buffer) const { return home_[buffer]; }

  /// An action of `bucket` (-1: of all) uses a buffer. Returns the fault: it reads what is not the newest; empty: none.
  std::string BeforeUse(const Use& use, int bucket);
  /// The piece is copied. Returns the fault; empty: none.
  std::string Move(int from, int to, int bucket);
  /// A fault for each resident buffer that is not up to date after the step.
  std::vector<std::string> AtTheEnd() const;

 private:
  const std::string& NameOf(int buffer) const { return plan_.buffers[buffer].name; }
  /// Of what the buffer holds of the bucket.
  int64_t& Version(int buffer, int bucket);
  int64_t& Newest(int buffer, int bucket) { return newest_[Canonical(home_[buffer])][static_cast<size_t>(bucket)]; }
  int Canonical(int resident) const {
    return plan_.buffers[resident].alias_of >= 0 ? plan_.buffers[resident].alias_of : resident;
  }

  const Plan& plan_;
  std::vector<int> home_;
  std::vector<std::vector<int64_t>> newest_, stored_;  // of a resident buffer: of its buckets
  std::vector<int64_t> staged_;                        // of a staging buffer; -1: nothing
};

}  // namespace ds
