// Promise: a disk is measured by bytes that reach it; nothing is left there, and nothing begins that it has no room
// for.
#include "runtime/bench/storage.h"

#include <signal.h>
#include <sys/resource.h>

#include "runtime/base/error.h"
#include "test/catch.h"
#include "test/unit/data/temp_folder.h"

namespace ds {
namespace {

using test::Contains;
using test::MessageOf;

StorageOptions Small(const std::filesystem::path& folder) {
  StorageOptions options;
  options.folder = folder;
  options.bytes = 1 << 20;
  options.blocks = {4096, 256 << 10};
  options.depths = {1, 4};
  return options;
}

std::vector<StorageResult> Measure(const StorageOptions& options, double seconds = 30) {
  return MeasureStorage(options, Budget(seconds), [](const StorageResult&) {});
}

}  // namespace

TEST_CASE("every block size and queue is written, then read, whole; the folder is empty meanwhile and afterwards") {
  const test::TempFolder folder;
  size_t told = 0;
  const std::vector<StorageResult> results =
      MeasureStorage(Small(folder.path()), Budget(30), [&](const StorageResult& result) {
        ++told;
        CHECK(folder.Names().empty());
        CHECK(result.bytes == 1 << 20);
        CHECK(result.seconds > 0);
        CHECK(result.Rate() == static_cast<double>(result.bytes) / result.seconds);
      });
  CHECK(told == 8);
  REQUIRE(results.size() == 8);
  for (size_t i = 0; i < results.size(); ++i) CHECK(results[i].write == (i % 2 == 0));
  CHECK(results[0].block == 4096);
  CHECK(results[0].depth == 1);
  CHECK(results[2].depth == 4);
  CHECK(results[4].block == 256 << 10);
  CHECK(folder.Names().empty());
}

TEST_CASE("a time that is over ends a measurement at a block, and begins no other") {
  const test::TempFolder folder;
  CHECK(Measure(Small(folder.path()), 0).empty());
  StorageOptions options = Small(folder.path());
  options.bytes = int64_t{256} << 20;
  options.blocks = {4096};
  options.depths = {2};
  CheckStorage(options);
  for (const StorageResult& result : Measure(options, 0.02)) {
    CHECK(result.bytes < options.bytes);
    CHECK(result.bytes % 4096 == 0);
  }
}

TEST_CASE("where nothing can be made the folder is named") {
  const test::TempFolder folder;
  const auto message = [](const std::filesystem::path& path) {
    return MessageOf<UsageError>([&] { CheckStorage(Small(path)); });
  };
  CHECK(Contains(message(folder / "none"), "none"));
  CHECK(Contains(message(folder / "none"), "No such file"));
  const auto file = folder.Write("file", "text");
  CHECK(Contains(message(file), "not a folder"));
  CHECK(Contains(message("/proc"), "/proc"));
}

TEST_CASE("four times the size must be free") {
  const test::TempFolder folder;
  StorageOptions options = Small(folder.path());
  const int64_t free = CheckStorage(options).free_bytes;
  REQUIRE(free > int64_t{64} << 20);
  options.bytes = free / 2;
  const std::string message = MessageOf<UsageError>([&] { CheckStorage(options); });
  CHECK(Contains(message, "4 times its size"));
  CHECK(Contains(message, folder.path().string()));
  options.bytes = INT64_MAX / 2;
  CHECK_THROWS_AS(CheckStorage(options), UsageError);
}

TEST_CASE("impossible blocks, queues and sizes are refused") {
  const test::TempFolder folder;
  const auto refused = [&](auto change) {
    StorageOptions options = Small(folder.path());
    change(options);
    CHECK_THROWS_AS(CheckStorage(options), UsageError);
    CHECK_THROWS_AS(Measure(options), UsageError);
  };
  refused([](StorageOptions& o) { o.blocks = {5000}; });
  refused([](StorageOptions& o) { o.blocks = {0}; });
  refused([](StorageOptions& o) { o.blocks = {2 << 20}; });
  refused([](StorageOptions& o) { o.depths = {0}; });
  refused([](StorageOptions& o) { o.bytes = 0; });
}

TEST_CASE("a write that fails is an error with the folder, on whichever thread it was") {
  const test::TempFolder folder;
  struct sigaction old {};
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGXFSZ, &ignore, &old);
  rlimit limit{}, small{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &limit) == 0);
  small = {512 << 10, limit.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  std::string message;
  try {
    Measure(Small(folder.path()));
  } catch (const SystemError& error) {
    message = error.what();
  }
  ::setrlimit(RLIMIT_FSIZE, &limit);
  ::sigaction(SIGXFSZ, &old, nullptr);
  CHECK(Contains(message, "cannot write to a file in " + folder.path().string()));
  CHECK(folder.Names().empty());
}

TEST_CASE("through the page cache the same is measured, and it is told") {
  const test::TempFolder folder;
  StorageOptions options = Small(folder.path());
  options.direct = false;
  CHECK_FALSE(CheckStorage(options).direct);
  const std::vector<StorageResult> results = Measure(options);
  CHECK(results.size() == 8);
  for (const StorageResult& result : results) CHECK(result.bytes == 1 << 20);
  CHECK(folder.Names().empty());
}

}  // namespace ds
