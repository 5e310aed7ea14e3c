// Promise: what was written to a file tier is read back, whatever the offsets, lengths and memory, by whichever way it
// is moved, over one folder or several, by one lane or many; and no byte beside it is touched, in the tier or in
// memory.
#include "runtime/state/file_tier.h"

#include <sys/wait.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <thread>

#include "runtime/base/error.h"
#include "test/catch.h"
#include "test/unit/state/tier_modes.h"

namespace ds {
namespace {

using test::Contains;
using test::Guarded;
using test::MessageOf;
using test::OptionsOf;
using test::RandomText;
using test::TempFolder;
using test::TierModes;

std::vector<std::string> Folders(const TempFolder& folder, int count) {
  std::vector<std::string> paths;
  for (int i = 0; i < count; ++i) {
    paths.push_back((folder / ("disk" + std::to_string(i))).string());
    std::filesystem::create_directories(paths.back());
  }
  return paths;
}

/// A tier and what it should hold.
class Modelled {
 public:
  Modelled(FileLane& lane, uint64_t seed, int64_t begin, int64_t end)
      : lane_(lane), random_(seed), begin_(begin), text_(static_cast<size_t>(end - begin), '\0') {}

  /// Empties the range, for a model that is not the first.
  void Zero() { lane_.Write(begin_, text_.data(), static_cast<int64_t>(text_.size())); }

  /// One read or write, blocking or not, of a range and memory of some alignment.
  void Step() {
    const int64_t most = static_cast<int64_t>(text_.size());
    int64_t at = Below(most),
            bytes = Below(2) != 0 ? Below(most - at + 1) : Below(std::min<int64_t>(most - at, 9000) + 1);
    if (Below(3) == 0) at -= at % FileTier::kAlignment, bytes -= bytes % FileTier::kAlignment;
    const int64_t shift = Below(3) == 0 ? Below(4096) : 512 * Below(2);
    const bool write = Below(2) != 0;
    if (pending_.size() == 5 || Below(4) == 0) Settle();
    Pending& request = pending_.emplace_back(bytes, shift);
    if (write) {
      const std::string text = RandomText(random_, bytes);
      std::memcpy(request.memory.data(), text.data(), text.size());
      text_.replace(static_cast<size_t>(at), static_cast<size_t>(bytes), text);
      request.ticket = lane_.StartWrite(begin_ + at, request.memory.data(), bytes);
      request.expected = text;
    } else {
      request.ticket = lane_.StartRead(begin_ + at, request.memory.data(), bytes);
      request.expected = text_.substr(static_cast<size_t>(at), static_cast<size_t>(bytes));
    }
  }

  /// Waits for what is under way, the newest first, and looks at it.
  void Settle() {
    for (; !pending_.empty(); pending_.pop_back()) {
      Pending& request = pending_.back();
      lane_.Wait(request.ticket);
      wrong_ += request.memory.Text() != request.expected || !request.memory.GuardsHold();
    }
  }

  /// The whole range; how many requests found something else than the model.
  int Finish() {
    Settle();
    Guarded all(static_cast<int64_t>(text_.size()), 0);
    lane_.Read(begin_, all.data(), static_cast<int64_t>(text_.size()));
    return wrong_ + (all.Text() != text_ || !all.GuardsHold());
  }

 private:
  struct Pending {
    Pending(int64_t bytes, int64_t shift) : memory(bytes, shift) {}
    Guarded memory;
    std::string expected;
    FileLane::Ticket ticket = 0;
  };
  int64_t Below(int64_t end) { return end <= 0 ? 0 : static_cast<int64_t>(random_() % static_cast<uint64_t>(end)); }

  FileLane& lane_;
  std::mt19937_64 random_;
  const int64_t begin_;
  std::string text_;
  std::deque<Pending> pending_;
  int wrong_ = 0;
};

}  // namespace

TEST_CASE("random ranges, lengths and alignments read back, over one to three folders, every way") {
  for (const test::TierMode& mode : TierModes())
    for (int count = 1; count <= 3; ++count) {
      CAPTURE(mode.name, count);
      const TempFolder folder;
      FileTier tier(OptionsOf(mode, Folders(folder, count)), 1'300'000, "rank 0");
      CHECK(tier.bytes() == FileTier::RoundUp(1'300'000));
      CHECK(tier.backend() == mode.backend);
      FileLane lane(tier);
      Modelled model(lane, static_cast<uint64_t>(count), 0, tier.bytes());
      for (int step = 0; step < 150; ++step) model.Step();
      CHECK(model.Finish() == 0);
      CHECK(folder.Names().size() == static_cast<size_t>(count));  // the folders alone
    }
}

TEST_CASE(
    "a part of a read or write that the system leaves is moved by another, and refused registration is no error") {
  for (const test::TierMode& mode : TierModes()) {
    CAPTURE(mode.name);
    const TempFolder folder;
    const test::Failpoints failpoints("file_tier.read,short;file_tier.write,short;file_tier.register,unsupported");
    FileTier tier(OptionsOf(mode, Folders(folder, 2)), 600'000, "rank 0");
    FileLane lane(tier);
    Modelled model(lane, 7, 0, tier.bytes());
    for (int step = 0; step < 60; ++step) model.Step();
    CHECK(model.Finish() == 0);
  }
}

TEST_CASE("lanes of several threads work at once, on ranges that share sectors too") {
  for (const test::TierMode& mode : TierModes()) {
    CAPTURE(mode.name);
    const TempFolder folder;
    FileTier tier(OptionsOf(mode, Folders(folder, 2)), 900'000, "rank 0");
    std::atomic<int> wrong{0};
    {
      std::vector<std::jthread> threads;
      for (int i = 0; i < 4; ++i)
        threads.emplace_back([&, i] {
          FileLane lane(tier);
          Modelled model(lane, static_cast<uint64_t>(i), i * 200'001, (i + 1) * 200'001);
          for (int step = 0; step < 60; ++step) model.Step();
          wrong += model.Finish();
        });
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("threads that write to parts of one sector lose nothing of each other's") {
  for (const test::TierMode& mode : TierModes()) {
    CAPTURE(mode.name);
    const TempFolder folder;
    FileTier tier(OptionsOf(mode, Folders(folder, 1)), 4096, "rank 0");
    std::atomic<int> wrong{0};
    {
      std::vector<std::jthread> threads;
      for (int i = 0; i < 4; ++i)
        threads.emplace_back([&, i] {
          FileLane lane(tier);
          for (int round = 0; round < 100; ++round) {
            const std::string text(100, static_cast<char>('a' + (round + i) % 26));
            std::string back(100, 'Z');
            lane.Write(i * 100, text.data(), 100);
            lane.Read(i * 100, back.data(), 100);
            wrong += back != text;
          }
        });
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("allocations share no sector, and the sum of their rounded sizes is what they take") {
  const TempFolder folder;
  FileTier tier(OptionsOf(TierModes()[0], {folder.path().string()}), 3 * FileTier::kAlignment, "rank 2");
  CHECK(tier.Allocate(1) == 0);
  CHECK(tier.Allocate(0) == FileTier::kAlignment);
  CHECK(tier.Allocate(FileTier::kAlignment + 1) == FileTier::kAlignment);
  const std::string message = MessageOf<RuntimeError>([&] { tier.Allocate(1); });
  CHECK(message == "rank 2's file tier of 12288 bytes, of which 12288 are taken, has no room for 1 more");
  CHECK_THROWS_AS(tier.Allocate(-1), RuntimeError);
}

TEST_CASE("stripes go round robin over the folders: each file has its share and no more") {
  const TempFolder folder;
  FileTierOptions options = OptionsOf(TierModes()[0], Folders(folder, 3));
  options.stripe_bytes = 0;
  FileTier tier(options, (int64_t{7} << 20) + 1, "rank 0");  // eight stripes of 1 MiB, the last of a sector
  for (int stripe = 0; stripe < 8; ++stripe) {
    const FileTier::Place place = tier.PlaceOf((int64_t{stripe} << 20) + 5, 4 << 20);
    CHECK(place.file == stripe % 3);
    CHECK(place.offset == (int64_t{stripe} / 3 << 20) + 5);
    CHECK(place.bytes == (1 << 20) - 5);
  }
  const std::vector<int> files = tier.Descriptors();
  const int64_t sizes[] = {3 << 20, (2 << 20) + 4096, 2 << 20};
  for (size_t i = 0; i < 3; ++i) CHECK(::lseek(files[i], 0, SEEK_END) == sizes[i]);
}

TEST_CASE("a tier of nothing, and requests of nothing, are no errors") {
  for (const test::TierMode& mode : TierModes()) {
    CAPTURE(mode.name);
    const TempFolder folder;
    FileTier empty(OptionsOf(mode, Folders(folder, 2)), 0, "rank 0");
    FileLane lane(empty);
    lane.Read(0, nullptr, 0);
    lane.Wait(lane.StartWrite(0, nullptr, 0));
    lane.Wait(12345);  // no such ticket
    lane.WaitAll();
    char byte = 0;
    CHECK_THROWS_AS(lane.Read(0, &byte, 1), RuntimeError);
  }
}

TEST_CASE("requests beyond the tier are refused, with their place") {
  const TempFolder folder;
  FileTier tier(OptionsOf(TierModes()[0], Folders(folder, 1)), 8192, "rank 0");
  FileLane lane(tier);
  char byte = 'x';
  const std::string message = MessageOf<RuntimeError>([&] { lane.StartRead(8192, &byte, 1); });
  CHECK(message == "bytes [8192, +1) of rank 0's file tier of 8192");
  CHECK_THROWS_AS(lane.StartWrite(-1, &byte, 1), RuntimeError);
  CHECK_THROWS_AS(lane.StartRead(1, &byte, INT64_MAX), RuntimeError);
  CHECK_THROWS_AS(lane.StartRead(1, &byte, -1), RuntimeError);
  CHECK(byte == 'x');
}

TEST_CASE("registered memory is read into and written from as other memory is") {
  for (const test::TierMode& mode : TierModes()) {
    CAPTURE(mode.name);
    const TempFolder folder;
    FileTier tier(OptionsOf(mode, Folders(folder, 2)), 1 << 20, "rank 0");
    const HostMemory memory(2 << 20);
    char* const data = static_cast<char*>(memory.Bytes(0, 2 << 20).data);
    FileLane lane(tier);
    const bool registered = lane.Register(data, 1 << 20);  // a half
    if (mode.backend == IoBackend::threads) CHECK_FALSE(registered);
    std::mt19937_64 random(3);
    const std::string text = RandomText(random, 1 << 20);
    for (const int64_t at : {int64_t{0}, int64_t{512 << 10}, int64_t{1 << 20}}) {  // inside, across, outside
      std::memcpy(data + at, text.data(), text.size());
      lane.Write(0, data + at, 1 << 20);
      std::memset(data + at, Guarded::kPoison, 1 << 20);
      lane.Read(0, data + at, 1 << 20);
      CHECK(std::memcmp(data + at, text.data(), text.size()) == 0);
    }
  }
}

TEST_CASE("it is told where the tier is, how it is moved, and why not better") {
  const TempFolder folder;
  FileTierOptions options = OptionsOf({"", IoBackend::threads, false}, Folders(folder, 2));
  const std::string plain = FileTier(options, 1 << 20, "rank 0").Describe();
  CHECK(plain == "1.0 MiB in " + options.paths[0] + " (page cache) and " + options.paths[1] +
                     " (page cache), stripes of 128.0 KiB; blocks of 64.0 KiB, 4 at once, by threads");
  options.direct = true;
  options.backend = IoBackend::any;
  const test::Failpoints failpoints("file_tier.direct,unsupported,hit=2;file_tier.io_uring,unsupported");
  FileTier tier(options, 1 << 20, "rank 0");
  CHECK(tier.backend() == IoBackend::threads);
  CHECK(Contains(tier.Describe(), options.paths[1] + " (page cache: without O_DIRECT (Operation not supported))"));
  CHECK(Contains(tier.Describe(), detail::BuiltWithIoUring()
                                      ? "by threads (io_uring: Operation not supported)"
                                      : "by threads (io_uring: this program was built without liburing)"));
  // A folder with O_DIRECT beside one without.
  FileLane lane(tier);
  Modelled model(lane, 11, 0, tier.bytes());
  for (int step = 0; step < 60; ++step) model.Step();
  CHECK(model.Finish() == 0);
}

TEST_CASE("relative folders are of the working directory, and told whole") {
  const TempFolder folder;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::create_directories(folder / "here");
  std::filesystem::current_path(folder.path());
  const std::string told = FileTier(OptionsOf(TierModes()[0], {"./here"}), 4096, "rank 0").Describe();
  const std::string dot = FileTier(OptionsOf(TierModes()[0], {"."}), 4096, "rank 0").Describe();
  std::filesystem::current_path(before);
  CHECK(Contains(told, "in " + (folder / "here").string() + " ("));
  CHECK(Contains(dot, "in " + folder.path().string() + " ("));
}

TEST_CASE("a lane may have blocks and a depth of its own") {
  for (const test::TierMode& mode : TierModes()) {
    CAPTURE(mode.name);
    const TempFolder folder;
    FileTier tier(OptionsOf(mode, Folders(folder, 2)), 900'000, "rank 0");
    for (const auto& [block, depth] : std::vector<std::pair<int64_t, int>>{{4096, 1}, {1 << 20, 33}}) {
      FileLane lane(tier, block, depth);
      Modelled model(lane, 5, 0, tier.bytes());
      model.Zero();
      for (int step = 0; step < 30; ++step) model.Step();
      CHECK(model.Finish() == 0);
    }
    CHECK_THROWS_AS(FileLane(tier, 5000, 1), UsageError);
    CHECK_THROWS_AS(FileLane(tier, 4096, 0), UsageError);
  }
}

TEST_CASE("a lane takes the memory for copies that it says, and none for requests that are aligned") {
  FileTierOptions options;
  options.block_bytes = 1 << 20, options.queue_depth = 8;
  CHECK(FileLane::CopyBytes(options) == 8 * (256 << 10) + 4096);
  options.block_bytes = 8192, options.queue_depth = 1;
  CHECK(FileLane::CopyBytes(options) == 8192 + 4096);
}

}  // namespace ds
