// Reads what workers write, as whole lines.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agent/line_limiter.h"
#include "agent/local_server.h"

namespace ds {

/// A line longer than this is handed on in pieces of this size.
constexpr size_t kMaxLineBytes = 1 << 20;

class OutputReader {
 public:
  /// Lines of a worker, without their newlines, in the order in which they were read; may block, which slows the writer
  /// down. On the reader's thread, as are the others.
  using OnLines = std::function<void(WorkerKey, std::vector<OutputLine>)>;
  /// Lines of a worker were dropped, `count` so far: when that begins, and when its output has ended.
  using OnDropped = std::function<void(WorkerKey, uint64_t count)>;
  /// Both streams of a worker ended.
  using OnEnd = std::function<void(WorkerKey)>;

  OutputReader(OnLines on_lines, OnDropped on_dropped, OnEnd on_end);
  ~OutputReader();

  /// Takes ownership of the read ends of the worker's pipes. `lines_per_second` of both together pass (LineLimiter); 0:
  /// all.
  void Add(WorkerKey worker, int out_fd, int error_fd, double lines_per_second);

  /// Stops reading from a worker whose pipes somebody else still holds open; what was read is handed on.
  void Drop(WorkerKey worker);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ds
