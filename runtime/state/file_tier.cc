#include "runtime/state/file_tier.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/plan/price.h"

namespace ds {
namespace {

constexpr int64_t kLeastBlock = kDirectAlignment, kMostBlock = int64_t{1} << 30;
constexpr int kDeepest = 1024;
constexpr int64_t kMostBytes = int64_t{1} << 60;  // above every disk: more is too much by its own error
constexpr int64_t kLeastStripe = int64_t{1} << 20;

void CheckOptions(const FileTierOptions& options, int64_t bytes) {
  if (options.paths.empty()) throw UsageError("the file tier has no folder; name one or more (nvme_path)");
  for (const std::string& path : options.paths)
    if (path.empty()) throw UsageError("a folder of the file tier has no name (nvme_path)");
  CheckFileBlocks(options.block_bytes, options.queue_depth);
  if (options.stripe_bytes < 0 || options.stripe_bytes % kLeastBlock != 0)
    throw UsageError("stripes of " + std::to_string(options.stripe_bytes) + " bytes: multiples of " +
                     std::to_string(kLeastBlock) + " are possible");
  if (bytes < 0) throw UsageError("a file tier of " + std::to_string(bytes) + " bytes");
}

/// As errors name it: "/a/b", whatever stood for it.
std::string Absolute(const std::string& path) {
  const std::filesystem::path whole = std::filesystem::absolute(path).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).string();
}

}  // namespace

void CheckFileBlocks(int64_t block_bytes, int queue_depth) {
  if (block_bytes < kLeastBlock || block_bytes > kMostBlock || block_bytes % kLeastBlock != 0)
    throw UsageError("blocks of " + std::to_string(block_bytes) + " bytes (aio.block_size): multiples of " +
                     std::to_string(kLeastBlock) + " up to " + std::to_string(kMostBlock) + " are possible");
  if (queue_depth < 1 || queue_depth > kDeepest)
    throw UsageError("a queue of " + std::to_string(queue_depth) + " blocks (aio.queue_depth): 1 to " +
                     std::to_string(kDeepest) + " are possible");
}

FileTier::FileTier(FileTierOptions options, int64_t bytes, std::string rank_name)
    : options_(std::move(options)),
      bytes_(RoundUp(std::clamp<int64_t>(bytes, 0, kMostBytes))),
      rank_name_(std::move(rank_name)) {
  CheckOptions(options_, bytes);
  if (options_.stripe_bytes == 0) options_.stripe_bytes = std::max(options_.block_bytes, kLeastStripe);
  const int64_t count = static_cast<int64_t>(options_.paths.size());
  const int64_t stripes = (bytes_ + options_.stripe_bytes - 1) / options_.stripe_bytes;
  for (int64_t i = 0; i < count; ++i) {
    NamelessFile file(Absolute(options_.paths[static_cast<size_t>(i)]));
    int64_t share = (stripes + count - 1 - i) / count * options_.stripe_bytes;
    if (share > 0 && (stripes - 1) % count == i) share -= stripes * options_.stripe_bytes - bytes_;  // the last stripe
    file.Reserve(share, rank_name_ + "'s file tier (" + FormatBytes(bytes_) + " over " + std::to_string(count) +
                            (count == 1 ? " folder)" : " folders)"));
    if (options_.direct && share > 0 && file.SetDirect()) direct_ = true;
    memory_alignment_ = std::max(memory_alignment_, file.memory_alignment());
    files_.push_back(std::move(file));
  }
  if (options_.backend != IoBackend::threads) why_no_io_uring_ = WhyNoIoUring();
  if (options_.backend == IoBackend::io_uring && !why_no_io_uring_.empty())
    throw RuntimeError(rank_name_ + "'s file tier: io_uring does not work here (" + why_no_io_uring_ +
                       "): permit it, or let threads read and write");
  if (options_.backend != IoBackend::threads && why_no_io_uring_.empty()) backend_ = IoBackend::io_uring;
}

int64_t FileTier::Allocate(int64_t bytes) {
  const std::lock_guard lock(allocate_mutex_);
  if (bytes < 0 || bytes > bytes_ - allocated_)
    throw RuntimeError(rank_name_ + "'s file tier of " + std::to_string(bytes_) + " bytes, of which " +
                       std::to_string(allocated_) + " are taken, has no room for " + std::to_string(bytes) + " more");
  const int64_t offset = allocated_;
  allocated_ += RoundUp(bytes);
  return offset;
}

FileTier::Place FileTier::PlaceOf(int64_t offset, int64_t bytes) const {
  const int64_t stripe = offset / options_.stripe_bytes, inside = offset % options_.stripe_bytes;
  const int64_t count = static_cast<int64_t>(files_.size());
  // Of one file the stripes follow each other: a block may cross them.
  const int64_t left = count == 1 ? bytes : std::min(bytes, options_.stripe_bytes - inside);
  return {static_cast<int>(stripe % count), stripe / count * options_.stripe_bytes + inside, left};
}

std::vector<int> FileTier::Descriptors() const {
  std::vector<int> descriptors;
  for (const NamelessFile& file : files_) descriptors.push_back(file.fd());
  return descriptors;
}

std::string FileTier::Describe() const {
  std::string text = FormatBytes(bytes_) + " in " + DescribeFolders();
  if (files_.size() > 1) text += ", stripes of " + FormatBytes(options_.stripe_bytes);
  return text + "; blocks of " + FormatBytes(options_.block_bytes) + ", " + std::to_string(options_.queue_depth) +
         " at once, by " + DescribeBackend();
}

std::string FileTier::DescribeFolders() const {
  std::string text;
  for (size_t i = 0; i < files_.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == files_.size() ? " and " : ", ") + files_[i].folder();
    if (files_[i].direct())
      text += " (O_DIRECT)";
    else if (files_[i].why_not_direct().empty())
      text += " (page cache)";
    else
      text += " (page cache: " + files_[i].why_not_direct() + ")";
  }
  return text;
}

std::string FileTier::DescribeBackend() const {
  return NameOf(backend_) + (why_no_io_uring_.empty() ? "" : " (io_uring: " + why_no_io_uring_ + ")");
}

void FileTier::Sync() const {
  for (const NamelessFile& file : files_) file.Sync();
}

}  // namespace ds
