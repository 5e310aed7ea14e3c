// Reads what workers write, as whole lines.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agent/local_server.h"

namespace ds {

/// A line longer than this is handed on in pieces of this size.
constexpr size_t kMaxLineBytes = 1 << 20;

class OutputReader {
 public:
  /// Lines of one stream, without their newlines; may block, which slows the writer down. On the reader's thread.
  using OnLines = std::function<void(WorkerKey, bool error_stream, std::vector<std::string>)>;
  /// Both streams of a worker ended.
  using OnEnd = std::function<void(WorkerKey)>;

  OutputReader(OnLines on_lines, OnEnd on_end);
  ~OutputReader();

  /// Takes ownership of the read ends of the worker's pipes.
  void Add(WorkerKey worker, int out_fd, int error_fd);

  /// Stops reading from a worker whose pipes somebody else still holds open; what was read is handed on.
  void Drop(WorkerKey worker);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ds
