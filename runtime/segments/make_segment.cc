#include "runtime/base/error.h"
#include "runtime/segments/segment_base.h"

namespace ds {

std::unique_ptr<Segment> MakeSegment(const SegmentSpec& spec, const SegmentOptions& options) {
  switch (spec.kind) {
    case SegmentKind::embedding:
      return MakeEmbeddingSegment(spec, options);
    case SegmentKind::attention:
      return MakeAttentionSegment(spec, options);
    case SegmentKind::mlp:
      return MakeMlpSegment(spec, options);
    case SegmentKind::head:
      return MakeHeadSegment(spec, options);
  }
  throw RuntimeError(spec.name + ": a segment of unknown kind");
}

}  // namespace ds
