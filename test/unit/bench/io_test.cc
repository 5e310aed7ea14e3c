// Promise: a disk is measured by bytes that reach it, as the file tier moves them; nothing is left there, and nothing
// begins that it has no room for.
#include "runtime/bench/io.h"

#include <signal.h>
#include <sys/resource.h>

#include "runtime/base/error.h"
#include "runtime/base/failpoint.h"
#include "test/catch.h"
#include "test/unit/data/temp_folder.h"

namespace ds {
namespace {

using test::Contains;
using test::MessageOf;

/// Failpoints for a scope.
struct SetForScope {
  explicit SetForScope(const std::string& entries) { SetFailpoints(entries); }
  ~SetForScope() { SetFailpoints(""); }
};

IoOptions Small(const std::filesystem::path& folder) {
  IoOptions options;
  options.folders = {folder};
  options.bytes = 1 << 20;
  options.blocks = {4096, 256 << 10};
  options.depths = {1, 4};
  return options;
}

std::vector<IoResult> Measure(const IoOptions& options, double seconds = 60) {
  return MeasureIo(options, Budget(seconds), [](const IoResult&) {});
}

IoResult Result(IoDirection direction, int64_t block, int depth, double rate) {
  return {direction, block, static_cast<int64_t>(rate), depth, 1.0};
}

}  // namespace

TEST_CASE(
    "every block size and queue is written, read, and both, whole; the folder is empty meanwhile and afterwards") {
  const test::TempFolder folder;
  std::vector<IoBackend> backends = {IoBackend::threads};
  if (WhyNoIoUring().empty()) backends.push_back(IoBackend::io_uring);
  for (const IoBackend backend : backends)
    for (const bool direct : {true, false}) {
      CAPTURE(NameOf(backend), direct);
      IoOptions options = Small(folder.path());
      options.backend = backend;
      options.direct = direct;
      CHECK(Contains(CheckIo(options).backend, NameOf(backend)));
      if (!direct) CHECK_FALSE(CheckIo(options).direct);
      size_t told = 0;
      const std::vector<IoResult> results = MeasureIo(options, Budget(60), [&](const IoResult& result) {
        ++told;
        CHECK(folder.Names().empty());
        CHECK(result.bytes == 1 << 20);
        CHECK(result.seconds > 0);
        CHECK(result.Rate() == static_cast<double>(result.bytes) / result.seconds);
      });
      CHECK(told == 12);
      REQUIRE(results.size() == 12);
      for (size_t i = 0; i < results.size(); ++i) {
        CHECK(results[i].direction == std::vector{IoDirection::write, IoDirection::read, IoDirection::both}[i % 3]);
        CHECK(results[i].block == (i < 6 ? 4096 : 256 << 10));
        CHECK(results[i].depth == (i / 3 % 2 == 0 ? 1 : 4));
      }
      CHECK(folder.Names().empty());
    }
}

TEST_CASE("several folders are one space") {
  const test::TempFolder a, b;
  IoOptions options = Small(a.path());
  options.folders.push_back(b.path());
  const IoFacts facts = CheckIo(options);
  CHECK(Contains(facts.folders, a.path().string()));
  CHECK(Contains(facts.folders, b.path().string()));
  CHECK(Measure(options).size() == 12);
  CHECK(a.Names().empty());
  CHECK(b.Names().empty());
}

TEST_CASE("a time that is over ends a measurement between requests, and begins no other") {
  const test::TempFolder folder;
  CHECK(Measure(Small(folder.path()), 0).empty());
  IoOptions options = Small(folder.path());
  options.bytes = int64_t{4} << 20;
  options.blocks = {4096};
  options.depths = {2};
  const SetForScope slow("file_tier.write,slow=1;file_tier.read,slow=1");
  CHECK(Measure(options, 0.1).size() < 3);  // a request of 1024 blocks takes a second
}

TEST_CASE("the blocks and the depth to take are the least memory near the best rate of both at once") {
  const std::vector<IoResult> results = {
      Result(IoDirection::write, 1 << 20, 4, 100), Result(IoDirection::read, 1 << 20, 4, 200),
      Result(IoDirection::both, 1 << 20, 4, 96),   Result(IoDirection::write, 1 << 20, 32, 150),
      Result(IoDirection::read, 1 << 20, 32, 300), Result(IoDirection::both, 1 << 20, 32, 100),
      Result(IoDirection::write, 4096, 1, 900),    Result(IoDirection::read, 4096, 1, 900),
      Result(IoDirection::both, 4096, 1, 94)};
  const IoChoice choice = ChooseIo(results);
  CHECK(choice.block == 1 << 20);
  CHECK(choice.depth == 4);
  CHECK(choice.write == 100);
  CHECK(choice.read == 200);
  CHECK(choice.mixed == 96);
  // Not measured at once: one after the other decides; a pair that was not both read and written is none.
  const IoChoice apart = ChooseIo({Result(IoDirection::write, 4096, 1, 100), Result(IoDirection::read, 4096, 1, 100),
                                   Result(IoDirection::write, 8192, 1, 90), Result(IoDirection::read, 8192, 1, 900),
                                   Result(IoDirection::write, 16384, 1, 9000)});
  CHECK(apart.block == 8192);
  CHECK(apart.mixed == 0);
  CHECK(ChooseIo({}).block == 0);
  CHECK(ChooseIo({Result(IoDirection::write, 4096, 1, 100)}).block == 0);
}

TEST_CASE("where nothing can be made the folder is named") {
  const test::TempFolder folder;
  const auto message = [](const std::filesystem::path& path) {
    return MessageOf<UsageError>([&] { CheckIo(Small(path)); });
  };
  CHECK(Contains(message(folder / "none"), "--path " + (folder / "none").string() + ": "));
  CHECK(Contains(message(folder / "none"), "No such file"));
  const auto file = folder.Write("file", "text");
  CHECK(Contains(message(file), "Not a directory"));
  CHECK(Contains(message("/proc"), "/proc"));
}

TEST_CASE("four times the size must be free") {
  const test::TempFolder folder;
  IoOptions options = Small(folder.path());
  const int64_t free = CheckIo(options).free_bytes;
  REQUIRE(free > int64_t{64} << 20);
  options.bytes = free / 2;
  const std::string message = MessageOf<UsageError>([&] { CheckIo(options); });
  CHECK(Contains(message, "4 times as much"));
  CHECK(Contains(message, folder.path().string()));
  options.bytes = INT64_MAX / 2;
  CHECK_THROWS_AS(CheckIo(options), UsageError);
}

TEST_CASE("impossible blocks, queues and sizes are refused") {
  const test::TempFolder folder;
  const auto refused = [&](auto change) {
    IoOptions options = Small(folder.path());
    change(options);
    CHECK_THROWS_AS(CheckIo(options), UsageError);
    CHECK_THROWS_AS(Measure(options), UsageError);
  };
  refused([](IoOptions& o) { o.blocks = {5000}; });
  refused([](IoOptions& o) { o.blocks = {0}; });
  refused([](IoOptions& o) { o.blocks = {2 << 20}; });
  refused([](IoOptions& o) { o.blocks = {}; });
  refused([](IoOptions& o) { o.depths = {0}; });
  refused([](IoOptions& o) { o.bytes = 0; });
  refused([](IoOptions& o) { o.folders = {}; });
}

TEST_CASE("a read or write that fails is an error with the folder, on whichever thread it was") {
  const test::TempFolder folder;
  for (const char* operation : {"read", "write"}) {
    for (const int hit : {1, 3, 700}) {
      CAPTURE(operation, hit);
      const SetForScope fails("file_tier." + std::string(operation) + ",hit=" + std::to_string(hit) + ",eio");
      const std::string message = MessageOf<RuntimeError>([&] { Measure(Small(folder.path())); });
      CHECK(Contains(message, folder.path().string() + ": cannot " + operation));
      CHECK(Contains(message, "of ds-bench's file tier: Input/output error"));
    }
  }
  rlimit limit{}, small{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &limit) == 0);
  small = {512 << 10, limit.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  std::string message;
  try {
    Measure(Small(folder.path()));
  } catch (const RuntimeError& error) {
    message = error.what();
  }
  ::setrlimit(RLIMIT_FSIZE, &limit);
  CHECK(Contains(message, folder.path().string() + ": ds-bench's file tier"));
  CHECK(Contains(message, "ulimit -f"));
  CHECK(folder.Names().empty());
}

}  // namespace ds
