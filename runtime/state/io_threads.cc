// Blocks by threads that read and write, as many as blocks are under way.
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>

#include "runtime/base/error.h"
#include "runtime/state/io_queue.h"

namespace ds::detail {
namespace {

class IoThreads : public IoQueue {
 public:
  IoThreads(const std::vector<int>& files, int depth) : files_(files), depth_(static_cast<size_t>(depth)) {}

  ~IoThreads() override {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    work_.notify_all();
  }

  void Submit(const IoBlock& block) override {
    const std::lock_guard lock(mutex_);
    blocks_.push_back(block);
    // Threads are started as they are needed: a lane that moves a block at a time has one.
    if (blocks_.size() > idle_ && threads_.size() < depth_) Start();
    work_.notify_one();
  }

  void Begin() override {}

  IoDone Wait() override {
    std::unique_lock lock(mutex_);
    finished_.wait(lock, [this] { return !done_.empty(); });
    const IoDone done = done_.front();
    done_.pop_front();
    return done;
  }

  bool Register(char*, int64_t) override { return false; }

 private:
  void Start() {
    try {
      threads_.emplace_back([this] { Work(); });
      ++idle_;
    } catch (const std::system_error& error) {
      if (!threads_.empty()) return;  // those that run do the work
      blocks_.pop_back();
      throw SystemError("cannot start a thread that reads and writes; raise `ulimit -u`", error.code().value());
    }
  }

  void Work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      work_.wait(lock, [this] { return over_ || !blocks_.empty(); });
      if (blocks_.empty()) return;
      const IoBlock block = blocks_.front();
      blocks_.pop_front();
      --idle_;
      lock.unlock();
      const IoDone done = Move(block);
      lock.lock();
      ++idle_;
      done_.push_back(done);
      finished_.notify_one();
    }
  }

  IoDone Move(const IoBlock& block) const {
    const int file = files_[static_cast<size_t>(block.file)];
    const auto bytes = static_cast<size_t>(block.bytes);
    const ssize_t n = block.write ? ::pwrite(file, block.memory, bytes, block.offset)
                                  : ::pread(file, block.memory, bytes, block.offset);
    return {block.slot, n < 0 ? -errno : n};
  }

  const std::vector<int> files_;
  const size_t depth_;
  std::mutex mutex_;
  std::condition_variable work_, finished_;
  std::deque<IoBlock> blocks_;
  std::deque<IoDone> done_;
  size_t idle_ = 0;  // threads without a block
  bool over_ = false;
  std::vector<std::jthread> threads_;  // last: they end before what they use
};

}  // namespace

std::unique_ptr<IoQueue> MakeIoThreads(const std::vector<int>& files, int depth) {
  return std::make_unique<IoThreads>(files, depth);
}

}  // namespace ds::detail
