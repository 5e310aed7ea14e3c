// Blocks by io_uring (io_uring(7)), through liburing.
#include <cerrno>
#include <climits>

#include "runtime/base/error.h"
#include "runtime/base/failpoint.h"
#include "runtime/state/io_queue.h"

#ifdef DEEPSHARD_HAS_URING
#include <liburing.h>

#include <algorithm>
#include <chrono>
#include <thread>
#endif

namespace ds::detail {

#ifdef DEEPSHARD_HAS_URING
namespace {

constexpr unsigned kRegions = 64;                   // of registered memory
constexpr int64_t kRegionBytes = int64_t{1} << 30;  // the kernel's most
constexpr auto kNap = std::chrono::milliseconds(1);

class IoRing : public IoQueue {
 public:
  explicit IoRing(const std::vector<int>& files) : files_(files) {}
  ~IoRing() override {
    if (!open_) return;
    // The kernel ends a ring behind its owner's back, and a file's space is taken for as long as the ring has the file.
    if (fixed_files_) ::io_uring_unregister_files(&ring_);
    if (sparse_) ::io_uring_unregister_buffers(&ring_);
    ::io_uring_queue_exit(&ring_);
  }

  /// 0, or errno.
  int Open(int depth) {
    int error = FailpointError("file_tier.io_uring");
    if (error == 0) error = -::io_uring_queue_init(static_cast<unsigned>(depth), &ring_, 0);
    if (error != 0) return error;
    open_ = true;
    if (!files_.empty())
      fixed_files_ = ::io_uring_register_files(&ring_, files_.data(), static_cast<unsigned>(files_.size())) == 0;
    return 0;
  }

  void Submit(const IoBlock& block) override {
    io_uring_sqe* const sqe = ::io_uring_get_sqe(&ring_);
    if (!sqe) throw RuntimeError("more blocks are under way than the queue is deep");
    const int file = fixed_files_ ? block.file : files_[static_cast<size_t>(block.file)];
    const auto bytes = static_cast<unsigned>(block.bytes);
    const auto offset = static_cast<uint64_t>(block.offset);
    const int region = RegionOf(block);
    if (region >= 0 && block.write)
      ::io_uring_prep_write_fixed(sqe, file, block.memory, bytes, offset, region);
    else if (region >= 0)
      ::io_uring_prep_read_fixed(sqe, file, block.memory, bytes, offset, region);
    else if (block.write)
      ::io_uring_prep_write(sqe, file, block.memory, bytes, offset);
    else
      ::io_uring_prep_read(sqe, file, block.memory, bytes, offset);
    if (fixed_files_) sqe->flags |= IOSQE_FIXED_FILE;
    ::io_uring_sqe_set_data64(sqe, static_cast<uint64_t>(block.slot));
  }

  void Begin() override {
    while (::io_uring_sq_ready(&ring_) > 0) {
      const int count = ::io_uring_submit(&ring_);
      if (count < 0) Retry(-count);
    }
  }

  IoDone Wait() override {
    io_uring_cqe* cqe = nullptr;
    while (::io_uring_peek_cqe(&ring_, &cqe) != 0) {
      const int result = ::io_uring_submit_and_wait(&ring_, 1);
      if (result < 0) Retry(-result);
    }
    const IoDone done{static_cast<int>(::io_uring_cqe_get_data64(cqe)), cqe->res};
    ::io_uring_cqe_seen(&ring_, cqe);
    return done;
  }

  bool Register(char* memory, int64_t bytes) override {
    if (FailpointError("file_tier.register") != 0) return false;
    if (!sparse_) {  // a table to be filled; not before Linux 5.19
      if (::io_uring_register_buffers_sparse(&ring_, kRegions) != 0) return false;
      sparse_ = true;
    }
    while (bytes > 0) {
      if (regions_.size() == kRegions) return false;
      iovec region{memory, static_cast<size_t>(std::min(bytes, kRegionBytes))};
      const __u64 tag = 0;
      if (::io_uring_register_buffers_update_tag(&ring_, static_cast<unsigned>(regions_.size()), &region, &tag, 1) != 1)
        return false;
      regions_.push_back(region);
      memory += region.iov_len, bytes -= static_cast<int64_t>(region.iov_len);
    }
    return true;
  }

 private:
  /// The kernel took nothing of what it was asked; what is lost for good is an error, the rest is asked again.
  static void Retry(int error) {
    if (error == EINTR) return;
    if (error != EAGAIN && error != EBUSY && error != ENOMEM) throw SystemError("io_uring_enter", error);
    std::this_thread::sleep_for(kNap);
  }

  int RegionOf(const IoBlock& block) const {
    for (size_t i = 0; i < regions_.size(); ++i) {
      const char* const begin = static_cast<const char*>(regions_[i].iov_base);
      if (block.memory >= begin && block.memory + block.bytes <= begin + regions_[i].iov_len)
        return static_cast<int>(i);
    }
    return -1;
  }

  const std::vector<int> files_;
  io_uring ring_{};
  bool open_ = false, fixed_files_ = false, sparse_ = false;
  std::vector<iovec> regions_;
};

}  // namespace

bool BuiltWithIoUring() { return true; }

std::unique_ptr<IoQueue> MakeIoRing(const std::vector<int>& files, int depth) {
  auto ring = std::make_unique<IoRing>(files);
  const int error = ring->Open(depth);
  if (error == 0) return ring;
  ring.reset();
  errno = error;
  return nullptr;
}

#else

bool BuiltWithIoUring() { return false; }

std::unique_ptr<IoQueue> MakeIoRing(const std::vector<int>&, int) {
  errno = ENOSYS;
  return nullptr;
}

#endif

}  // namespace ds::detail
