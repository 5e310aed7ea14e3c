#include "runtime/state/file_lane.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>

#include "runtime/base/error.h"
#include "runtime/base/failpoint.h"
#include "runtime/plan/price.h"

namespace ds {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kCopyBlock = 256 << 10;  // copying bounds what is not aligned; more would only take memory
constexpr int kMostRetries = 1000;         // of one block that makes no progress
constexpr auto kNap = std::chrono::milliseconds(1);

int64_t Down(int64_t value, int64_t unit) { return value / unit * unit; }
int64_t Up(int64_t value, int64_t unit) { return Down(value + unit - 1, unit); }

const char* FailpointOf(bool write) { return write ? "file_tier.write" : "file_tier.read"; }

/// The whole of it, at once: 0, or errno.
int MoveNow(int fd, bool write, char* memory, int64_t bytes, int64_t offset) {
  if (const int error = FailpointError(FailpointOf(write))) return error;
  for (int retries = 0; retries < kMostRetries;) {
    const ssize_t n = write ? ::pwrite(fd, memory, static_cast<size_t>(bytes), offset)
                            : ::pread(fd, memory, static_cast<size_t>(bytes), offset);
    if (n == bytes) return 0;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno != EAGAIN) return errno;
    ++retries;  // a part of a sector is no progress
    std::this_thread::sleep_for(kNap);
  }
  return write ? ENOSPC : EIO;
}

}  // namespace

FileLane::FileLane(FileTier& tier) : FileLane(tier, tier.options().block_bytes, tier.options().queue_depth) {}

FileLane::FileLane(FileTier& tier, int64_t block_bytes, int queue_depth)
    : tier_(tier), block_bytes_(block_bytes), copy_block_bytes_(std::min(block_bytes_, kCopyBlock)) {
  CheckFileBlocks(block_bytes, queue_depth);
  slots_.resize(static_cast<size_t>(queue_depth));
  for (int slot = queue_depth; slot > 0;) free_.push_back(--slot);
  queue_ = MakeIoQueue(tier.backend() == IoBackend::threads ? IoBackend::threads : tier.options().backend,
                       tier.Descriptors(), queue_depth);
}

FileLane::~FileLane() {
  try {
    while (free_.size() < slots_.size()) {
      queue_->Begin();
      Reap();
    }
  } catch (...) {  // the kernel's queue is lost; it waits for its blocks as it closes
  }
}

int64_t FileLane::CopyBytes(const FileTierOptions& options) {
  return options.queue_depth * std::min(options.block_bytes, kCopyBlock) + FileTier::kAlignment;
}

FileLane::Ticket FileLane::StartRead(int64_t offset, void* to, int64_t bytes) {
  return Start(false, offset, static_cast<char*>(to), bytes);
}

FileLane::Ticket FileLane::StartWrite(int64_t offset, const void* from, int64_t bytes) {
  return Start(true, offset, const_cast<char*>(static_cast<const char*>(from)), bytes);  // it is only read from
}

FileLane::Ticket FileLane::Start(bool write, int64_t offset, char* memory, int64_t bytes) {
  if (offset < 0 || bytes < 0 || bytes > tier_.bytes() - offset)
    throw RuntimeError("bytes [" + std::to_string(offset) + ", +" + std::to_string(bytes) + ") of " +
                       tier_.rank_name() + "'s file tier of " + std::to_string(tier_.bytes()));
  Request request;
  request.ticket = ++last_;
  request.write = write, request.offset = offset, request.bytes = bytes, request.memory = memory;
  request.next = offset, request.end = offset + bytes;
  if (!IsAligned(request)) TakeCopyMemory();
  AwaitConflicts(offset, bytes, write);
  Request& started = requests_.emplace_back(std::move(request));
  if (write) WriteEdges(started);
  Pump();
  return started.ticket;
}

bool FileLane::IsAligned(const Request& request) const {
  const int64_t unit = tier_.Alignment();
  return request.offset % unit == 0 && request.bytes % unit == 0 &&
         reinterpret_cast<uintptr_t>(request.memory) % static_cast<uintptr_t>(tier_.MemoryAlignment()) == 0;
}

void FileLane::TakeCopyMemory() {
  if (copies_.bytes() > 0) return;
  sector_ = HostMemory(tier_.Alignment());
  copies_ = HostMemory(copy_block_bytes_ * static_cast<int64_t>(slots_.size()));
  queue_->Register(static_cast<char*>(copies_.Bytes(0, copies_.bytes()).data), copies_.bytes());
}

void FileLane::AwaitConflicts(int64_t offset, int64_t bytes, bool write) {
  const int64_t unit = tier_.Alignment(), begin = Down(offset, unit), end = Up(offset + bytes, unit);
  for (const Request& other : requests_)
    if ((write || other.write) && Down(other.offset, unit) < end && begin < Up(other.offset + other.bytes, unit))
      Drive(other);
}

/// Sectors that a write covers in part are written here and now, and taken off the request.
void FileLane::WriteEdges(Request& request) {
  const int64_t unit = tier_.Alignment();
  if (unit == 1 || request.bytes == 0) return;
  const int64_t head = std::min(Up(request.next, unit), request.end);
  int64_t at = request.next;
  try {
    if (request.next % unit != 0) {
      WritePartOfSector(at, request.memory, head - at);
      request.next = head;
    }
    if (request.next < request.end && request.end % unit != 0) {
      at = Down(request.end, unit);
      WritePartOfSector(at, request.memory + (at - request.offset), request.end - at);
      request.end = at;
    }
  } catch (const RuntimeError&) {
    request.error = std::current_exception();
    request.next = request.end;
  }
}

void FileLane::WritePartOfSector(int64_t offset, const char* from, int64_t bytes) {
  const FileTier::Place place = tier_.PlaceOf(offset, bytes);
  const int64_t unit = tier_.Alignment(), inside = place.offset % unit;
  const int fd = tier_.Descriptors()[static_cast<size_t>(place.file)];
  char* const sector = static_cast<char*>(sector_.Bytes(0, unit).data);
  const std::lock_guard lock(tier_.sector_mutex());
  int error = MoveNow(fd, false, sector, unit, place.offset - inside);
  const bool read = error == 0;
  if (read) {
    std::memcpy(sector + inside, from, static_cast<size_t>(bytes));
    error = MoveNow(fd, true, sector, unit, place.offset - inside);
  }
  if (error == 0) return;
  Request failed;
  failed.write = read;
  Fail(failed, offset, bytes, error);
  std::rethrow_exception(failed.error);
}

void FileLane::Issue(Request& request) {
  const int64_t unit = tier_.Alignment();
  const FileTier::Place place = tier_.PlaceOf(request.next, request.end - request.next);
  Slot slot;
  slot.request = &request;
  slot.offset = request.next;
  char* const memory = request.memory + (request.next - request.offset);
  const bool direct = tier_.Direct(place.file);
  const int64_t skip = direct ? place.offset % unit : 0;
  const auto fits = [&](const char* at) {
    return reinterpret_cast<uintptr_t>(at) % static_cast<uintptr_t>(tier_.MemoryAlignment()) == 0;
  };
  const int index = free_.back();
  slot.block = {place.file, request.write, place.offset - skip, 0, memory, index};
  if (!direct || (skip == 0 && place.bytes >= unit && fits(memory))) {
    slot.useful = std::min(direct ? Down(place.bytes, unit) : place.bytes, block_bytes_);
    slot.block.bytes = slot.useful;
  } else {
    // A first sector alone where all behind it can go without a copy.
    const int64_t most = skip != 0 && fits(memory + (unit - skip)) ? unit : copy_block_bytes_;
    slot.useful = std::min(place.bytes, most - skip);
    slot.block.bytes = Up(skip + slot.useful, unit);
    slot.block.memory = static_cast<char*>(copies_.Bytes(index * copy_block_bytes_, copy_block_bytes_).data);
    if (request.write) {
      std::memcpy(slot.block.memory, memory, static_cast<size_t>(slot.useful));  // whole sectors: edges are written
    } else {
      slot.copy_from = slot.block.memory + skip;
      slot.copy_to = memory;
    }
  }
  FailpointOutcome outcome;
  if (FailpointsSet()) outcome = FailpointAt(FailpointOf(request.write));
  if (outcome.error != 0) return Fail(request, slot.offset, slot.useful, outcome.error);
  if (outcome.delay > 0)
    slot.due = last_due_ = std::max(last_due_, Clock::now()) + std::chrono::milliseconds(outcome.delay);
  free_.pop_back();
  request.next += slot.useful;
  ++request.under_way;
  Slot& taken = slots_[static_cast<size_t>(index)];
  taken = slot;
  Submit(taken, outcome.cut);
}

void FileLane::Submit(Slot& slot, bool cut) {
  IoBlock block = slot.block;
  const int64_t unit = tier_.Alignment();
  if (cut && block.bytes >= 2 * unit) block.bytes = Down(block.bytes / 2, unit);
  queue_->Submit(block);
}

void FileLane::Pump() {
  for (Request& request : requests_)
    while (request.next < request.end && !free_.empty()) Issue(request);
  queue_->Begin();
}

void FileLane::Reap() {
  const IoDone done = queue_->Wait();
  Slot& slot = slots_[static_cast<size_t>(done.slot)];
  if (slot.due > Clock::now()) std::this_thread::sleep_until(slot.due);
  int64_t moved = std::max<int64_t>(done.result, 0);
  int error = done.result < 0 ? static_cast<int>(-done.result) : 0;
  if (moved < slot.block.bytes && tier_.Direct(slot.block.file)) moved = Down(moved, tier_.Alignment());
  slot.block.offset += moved, slot.block.memory += moved, slot.block.bytes -= moved;
  if (slot.block.bytes > 0) {
    const bool again = error == 0 || error == EINTR || error == EAGAIN;
    if (again && (moved > 0 || ++slot.retries < kMostRetries)) {
      if (error == EAGAIN || (error == 0 && moved == 0)) std::this_thread::sleep_for(kNap);
      return Submit(slot, false);
    }
    if (error == 0) error = slot.block.write ? ENOSPC : EIO;  // it ended too soon
  }
  Request& request = *slot.request;
  if (error != 0)
    Fail(request, slot.offset, slot.useful, error);
  else if (slot.copy_to)
    std::memcpy(slot.copy_to, slot.copy_from, static_cast<size_t>(slot.useful));
  --request.under_way;
  free_.push_back(done.slot);
}

/// Until the request has ended.
void FileLane::Drive(const Request& request) {
  for (;;) {
    Pump();
    if (request.Done()) return;
    Reap();
  }
}

void FileLane::Fail(Request& request, int64_t offset, int64_t bytes, int error) const {
  request.next = request.end;
  if (request.error) return;
  const std::string doing = std::string("cannot ") + (request.write ? "write " : "read ") + std::to_string(bytes) +
                            " bytes at offset " + std::to_string(offset) + " of " + tier_.rank_name() + "'s file tier";
  const int file = tier_.PlaceOf(offset, std::max<int64_t>(bytes, 1)).file;
  request.error = std::make_exception_ptr(FolderError(tier_.FolderOf(file), doing, error));
}

std::list<FileLane::Request>::iterator FileLane::Find(Ticket ticket) {
  return std::find_if(requests_.begin(), requests_.end(),
                      [ticket](const Request& request) { return request.ticket == ticket; });
}

void FileLane::Wait(Ticket ticket) {
  const auto request = Find(ticket);
  if (request == requests_.end()) return;
  Drive(*request);
  const std::exception_ptr error = request->error;
  requests_.erase(request);
  if (error) std::rethrow_exception(error);
}

void FileLane::WaitAll() {
  std::exception_ptr error;
  while (!requests_.empty()) {
    Drive(requests_.front());
    if (!error) error = requests_.front().error;
    requests_.pop_front();
  }
  if (error) std::rethrow_exception(error);
}

bool FileLane::Register(void* memory, int64_t bytes) { return queue_->Register(static_cast<char*>(memory), bytes); }

}  // namespace ds
