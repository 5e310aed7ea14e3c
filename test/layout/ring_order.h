// The order in which NCCL's ring reduce-scatter adds, in the words of its algorithm: for tests of what depends on it.
//
// A reduce-scatter of `count` elements a rank runs on some channels. A channel has a ring of its own, which the machine
// decides, and takes chunks of a rank's piece in turn; the chunks of the last round are smaller, so that all channels
// have work, and small calls run on fewer channels. A chunk of rank r's piece begins at the rank behind r in the ring
// and is added to by one rank after another until it comes to r. So an element's order is a function of the ranks'
// places, `count`, the element's place in the piece, and r: of nothing else.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/comm/communicator.h"

namespace ds::layout_test {

struct Rings {
  int ranks = 1;
  int channels = 4;
  int64_t chunk = 96;             ///< elements of a full chunk
  int64_t channel_minimum = 100;  ///< a call runs on no more channels than it has so many elements for

  /// The ring of a channel: channels differ in direction and stride, as those of a machine whose links differ do.
  std::vector<int> Ring(int channel) const;
  /// The ranks whose elements are added, in order, for element `at` of `owner`'s piece of a call.
  std::vector<int> Order(int64_t count, int64_t at, int owner) const;
};

/// `inner` with ReduceScatter (of f32) in the order of rings.
std::unique_ptr<Communicator> InRingOrder(std::unique_ptr<Communicator> inner);

}  // namespace ds::layout_test
