// Reads and writes of a file tier by one thread, blocking or under way while the thread does something else.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <list>
#include <memory>
#include <vector>

#include "runtime/state/file_tier.h"
#include "runtime/state/host_memory.h"
#include "runtime/state/io_queue.h"

namespace ds {

/// Used by one thread at a time; as many lanes as are wanted work on one tier at once. A request is cut into blocks, of
/// which queue_depth at most are with the system; further ones follow when the thread is in a call of the lane.
///
/// Any offset, length and memory works; FileTier::Alignment() tells what is fast. Requests of one lane that touch the
/// same sectors, one of them a write, happen in the order in which they were started. Between lanes: what a write has
/// been waited for, every later read sees; writes to ranges that do not overlap do not disturb each other, though those
/// that share a sector wait for each other (FileTier::Allocate gives ranges that do not); of ranges that overlap any
/// mixture may be found.
///
/// Errors: RuntimeError with folder, operation, length, offset, the system's reason and what to do, from Wait, after
/// all blocks of the request have ended: its memory is free then. What a failed write's range holds is not known.
class FileLane {
 public:
  using Ticket = int64_t;

  /// The tier outlives the lane. Throws RuntimeError when neither io_uring nor a thread can be had.
  explicit FileLane(FileTier& tier);
  /// With other blocks and another depth than the tier's options say; their limits hold.
  FileLane(FileTier& tier, int64_t block_bytes, int queue_depth);
  /// Waits for what the system is at; blocks that have not begun do not happen, and errors are not told.
  ~FileLane();
  FileLane(const FileLane&) = delete;
  FileLane& operator=(const FileLane&) = delete;

  /// Bytes [offset, offset + bytes) of the tier. Throws RuntimeError too when they are not inside.
  void Read(int64_t offset, void* to, int64_t bytes) { Wait(StartRead(offset, to, bytes)); }
  void Write(int64_t offset, const void* from, int64_t bytes) { Wait(StartWrite(offset, from, bytes)); }

  /// The same, not waited for: the memory belongs to the lane until Wait returns.
  Ticket StartRead(int64_t offset, void* to, int64_t bytes);
  Ticket StartWrite(int64_t offset, const void* from, int64_t bytes);
  /// Each ticket is waited for once, in any order; again does nothing.
  void Wait(Ticket ticket);
  /// For all; throws the first error after the last has ended.
  void WaitAll();

  /// Tells the lane that requests will come from this memory, so that its pages are held once and not for every block
  /// (io_uring's registered buffers). False where that is not possible (RLIMIT_MEMLOCK, threads, old kernels): requests
  /// work all the same. The memory outlives the lane.
  bool Register(void* memory, int64_t bytes);

  /// Host memory that a lane takes, at its first request that is not aligned, to copy through.
  static int64_t CopyBytes(const FileTierOptions& options);

 private:
  struct Request {
    Ticket ticket = 0;
    bool write = false;
    int64_t offset = 0, bytes = 0;
    char* memory = nullptr;
    int64_t next = 0, end = 0;  // of the tier: blocks of [next, end) have not begun
    int under_way = 0;
    std::exception_ptr error;
    bool Done() const { return next >= end && under_way == 0; }
  };
  /// A block that is under way.
  struct Slot {
    Request* request = nullptr;
    IoBlock block;            // what is left of it
    int64_t offset = 0;       // of the tier, and
    int64_t useful = 0;       // bytes of it that the request wants
    char* copy_to = nullptr;  // reads that are copied: from `copy_from`
    const char* copy_from = nullptr;
    int retries = 0;
    std::chrono::steady_clock::time_point due;  // a failpoint's slow disk
  };

  Ticket Start(bool write, int64_t offset, char* memory, int64_t bytes);
  bool IsAligned(const Request& request) const;
  void TakeCopyMemory();
  void AwaitConflicts(int64_t offset, int64_t bytes, bool write);
  void WriteEdges(Request& request);
  void WritePartOfSector(int64_t offset, const char* from, int64_t bytes);
  void Issue(Request& request);
  void Submit(Slot& slot, bool cut);
  void Pump();
  void Reap();
  void Drive(const Request& request);
  void Fail(Request& request, int64_t offset, int64_t bytes, int error) const;
  std::list<Request>::iterator Find(Ticket ticket);

  FileTier& tier_;
  const int64_t block_bytes_, copy_block_bytes_;
  HostMemory copies_, sector_;  // `copies_`: a block a slot
  std::list<Request> requests_;
  std::vector<Slot> slots_;
  std::vector<int> free_;
  Ticket last_ = 0;
  std::chrono::steady_clock::time_point last_due_;
  std::unique_ptr<IoQueue> queue_;  // last: ends before the memory it may use
};

}  // namespace ds
