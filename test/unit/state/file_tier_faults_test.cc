// Promise: what fails is told with folder, operation, place, reason and what to do; nothing hangs, memory is free
// again, and the folders are left empty, whatever ends the process.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <functional>

#include "runtime/base/error.h"
#include "test/catch.h"
#include "test/unit/state/tier_modes.h"

namespace ds {
namespace {

using test::Contains;
using test::Failpoints;
using test::MessageOf;
using test::OptionsOf;
using test::TempFolder;
using test::TierMode;
using test::TierModes;

FileTierOptions In(const TempFolder& folder, const TierMode& mode = TierModes()[0]) {
  return OptionsOf(mode, {folder.path().string()});
}

std::string Refusal(const FileTierOptions& options, int64_t bytes = 1 << 20) {
  return MessageOf<RuntimeError>([&] { FileTier(options, bytes, "rank 3"); });
}

/// How `work` ended, in a child process: its exit code, or minus the signal.
int InChild(const std::function<int()>& work) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    int code = 99;
    try {
      code = work();
    } catch (...) {
    }
    ::_exit(code);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

}  // namespace

TEST_CASE("a block that fails is an error with its place, after which the lane and the tier go on") {
  for (const TierMode& mode : TierModes())
    for (const bool write : {false, true}) {
      CAPTURE(mode.name, write);
      const TempFolder folder;
      FileTier tier(In(folder, mode), 1 << 20, "rank 3");
      FileLane lane(tier);
      std::string memory(1 << 20, 'a');
      HostMemory aligned(1 << 20);
      char* const data = static_cast<char*>(aligned.Bytes(0, 1 << 20).data);
      {
        const Failpoints failpoints(
            write ? "file_tier.write,hit=6,eio;file_tier.write,hit=7,throw"  // none begins after it
                  : "file_tier.read,hit=6,eio;file_tier.read,hit=7,throw");
        const auto failing = write ? lane.StartWrite(0, data, 1 << 20) : lane.StartRead(0, data, 1 << 20);
        const auto beside = lane.StartRead(0, memory.data(), 0);
        const std::string message = MessageOf<RuntimeError>([&] { lane.Wait(failing); });
        CHECK(message == folder.path().string() + ": cannot " + (write ? "write" : "read") +
                             " 65536 bytes at offset 327680 of rank 3's file tier: Input/output error; the disk or its "
                             "connection failed (the kernel's log says more): replace it, or name a folder of another");
        lane.Wait(failing);  // it was told
        lane.Wait(beside);
      }
      lane.Write(5, memory.data(), 300'000);
      std::string back(300'000, 'z');
      lane.Read(5, back.data(), 300'000);
      CHECK(back == std::string(300'000, 'a'));
    }
}

TEST_CASE("of several requests the one that failed says so; WaitAll tells the first, when all have ended") {
  for (const TierMode& mode : TierModes()) {
    CAPTURE(mode.name);
    const TempFolder folder;
    FileTier tier(In(folder, mode), 1 << 20, "rank 3");
    FileLane lane(tier);
    const HostMemory memory(1 << 20);
    char* const data = static_cast<char*>(memory.Bytes(0, 1 << 20).data);
    {
      const Failpoints failpoints("file_tier.write,hit=2,enospc");
      const auto first = lane.StartWrite(0, data, 64 << 10), second = lane.StartWrite(64 << 10, data, 64 << 10),
                 third = lane.StartWrite(128 << 10, data, 64 << 10);
      lane.Wait(third);
      const std::string message = MessageOf<RuntimeError>([&] { lane.Wait(second); });
      CHECK(Contains(message, "cannot write 65536 bytes at offset 65536"));
      CHECK(Contains(message, "No space left on device; free space there, or name another folder"));
      lane.Wait(first);
    }
    const Failpoints failpoints("file_tier.write,hit=2,eio;file_tier.write,hit=3,enospc");
    for (int i = 0; i < 4; ++i) lane.StartWrite(i * (64 << 10), data, 64 << 10);
    CHECK(Contains(MessageOf<RuntimeError>([&] { lane.WaitAll(); }), "Input/output error"));
    lane.WaitAll();
  }
}

TEST_CASE("a sector that is written in part fails as a block does") {
  const TempFolder folder;
  for (const TierMode& mode : TierModes()) {
    if (!mode.direct) continue;
    FileTier tier(In(folder, mode), 1 << 20, "rank 3");
    if (!tier.direct()) continue;  // a file system without
    CAPTURE(mode.name);
    FileLane lane(tier);
    for (const bool read : {true, false}) {
      const Failpoints failpoints(read ? "file_tier.read,eio" : "file_tier.write,eio");
      const auto ticket = lane.StartWrite(100, "text", 4);
      CHECK(Contains(MessageOf<RuntimeError>([&] { lane.Wait(ticket); }),
                     std::string("cannot ") + (read ? "read" : "write") + " 4 bytes at offset 100 of rank 3"));
    }
  }
}

TEST_CASE("requests that nobody waited for are drained before their memory goes") {
  for (const TierMode& mode : TierModes()) {
    CAPTURE(mode.name);
    const TempFolder folder;
    FileTier tier(In(folder, mode), 1 << 20, "rank 3");
    for (const char* failpoints : {"", "file_tier.read,hit=3,eio", "file_tier.read,short"}) {
      const Failpoints set(failpoints);
      test::Guarded memory(1 << 20, 1);
      FileLane lane(tier);
      lane.StartRead(0, memory.data(), 1 << 20);
      lane.StartRead(0, memory.data(), 5000);
    }
  }
}

TEST_CASE("a slow disk is waited for, and only by who waits: a started request takes no time") {
  const TempFolder folder;
  FileTier tier(In(folder), 1 << 20, "rank 3");
  FileLane lane(tier);
  const HostMemory memory(1 << 20);
  using Clock = std::chrono::steady_clock;
  const Failpoints failpoints("file_tier.read,slow=100");
  bool quick = false;
  for (int attempt = 0; attempt < 20 && !quick; ++attempt) {  // a loaded machine may stop this thread anywhere
    const auto begin = Clock::now();
    const auto ticket = lane.StartRead(0, memory.Bytes(0, 192 << 10).data, 192 << 10);  // three blocks
    const auto started = Clock::now();
    lane.Wait(ticket);
    CHECK(Clock::now() - begin >= std::chrono::milliseconds(300));
    quick = started - begin < Clock::now() - started;
  }
  CHECK(quick);
}

TEST_CASE("options that make no sense are refused") {
  const TempFolder folder;
  const auto refusal = [&](const std::function<void(FileTierOptions&)>& change, int64_t bytes = 4096) {
    FileTierOptions options = In(folder);
    change(options);
    return MessageOf<UsageError>([&] { FileTier(options, bytes, "rank 3"); });
  };
  CHECK(Contains(refusal([](auto& o) { o.paths.clear(); }), "no folder"));
  CHECK(Contains(refusal([](auto& o) { o.paths = {""}; }), "no name"));
  for (const int64_t block : {int64_t{0}, int64_t{-4096}, int64_t{5000}, int64_t{2} << 30})
    CHECK(Contains(refusal([&](auto& o) { o.block_bytes = block; }), "aio.block_size"));
  for (const int depth : {0, -1, 1025})
    CHECK(Contains(refusal([&](auto& o) { o.queue_depth = depth; }), "queue_depth"));
  for (const int64_t stripe : {-1, 1000})
    CHECK(Contains(refusal([&](auto& o) { o.stripe_bytes = stripe; }), "stripes"));
  CHECK(Contains(refusal([](auto&) {}, -1), "-1 bytes"));
}

TEST_CASE("a folder that cannot be used is named, with the reason and what to do") {
  const TempFolder folder;
  FileTierOptions options = In(folder);
  options.paths = {(folder / "none").string()};
  CHECK(Refusal(options) == options.paths[0] +
                                ": cannot make a file: No such file or directory; make the folder on every node, or "
                                "name one that is there");
  options.paths = {folder.Write("file", "text").string()};
  CHECK(Refusal(options) == options.paths[0] + ": cannot make a file: Not a directory; name a folder");
  options.paths = {"/proc"};
  CHECK(Refusal(options).starts_with("/proc: cannot make a file: "));
  for (const auto& [error, advice] : std::vector<std::pair<int, std::string>>{{EROFS, "mount it writable"},
                                                                              {EDQUOT, "quota"},
                                                                              {ENOSPC, "free space"},
                                                                              {EACCES, "right to write"},
                                                                              {EFBIG, "ulimit -f"},
                                                                              {EINVAL, "another folder"}})
    CHECK(Contains(FolderError("/x", "cannot write", error).what(), advice));
  // A folder that goes away under a tier takes nothing from it: the file needs no name.
  std::filesystem::create_directories(folder / "gone");
  options.paths = {(folder / "gone").string()};
  FileTier tier(options, 1 << 20, "rank 3");
  std::filesystem::remove(folder / "gone");
  FileLane lane(tier);
  lane.Write(1, "text", 4);
  char text[5] = "....";
  lane.Read(1, text, 4);
  CHECK(std::string(text) == "text");
}

TEST_CASE("a folder that this user may not write to is refused", "[root]") {
  if (::geteuid() != 0) return;  // needs another user to become
  const TempFolder folder;
  ::chmod(folder.path().c_str(), 0755);
  CHECK(InChild([&] {
          if (::setresuid(65534, 65534, 65534) != 0) return 1;
          return Refusal(In(folder)) ==
                         folder.path().string() +
                             ": cannot make a file: Permission denied; give this user the right to write "
                             "there, or name another folder"
                     ? 0
                     : 2;
        }) == 0);
}

TEST_CASE("a disk that is too small is told before anything is written, with bytes wanted and free") {
  const TempFolder folder;
  const std::string message = Refusal(In(folder), int64_t{1} << 60);
  CHECK(Contains(message, folder.path().string() + ": rank 3's file tier ("));
  CHECK(Contains(message, " over 1 folder) wants "));
  CHECK(Contains(message, " are free for this user: free space, name another folder or more of them, or offload less"));
  const Failpoints failpoints("file_tier.reserve,enospc");
  CHECK(Contains(Refusal(In(folder)), "wants 1.0 MiB there, and "));
  const Failpoints broken("file_tier.reserve,eio");
  CHECK(Contains(Refusal(In(folder)), "cannot reserve 1.0 MiB: Input/output error"));
  CHECK(folder.Names().empty());
}

TEST_CASE("a full, a small and a read-only file system of memory", "[root]") {
  const TempFolder folder;
  const std::string path = folder.path().string();
  if (::mount("tmpfs", path.c_str(), "tmpfs", 0, "size=4m") != 0) return;  // not permitted here
  struct Unmount {
    const std::string& path;
    ~Unmount() { ::umount2(path.c_str(), MNT_DETACH); }
  } unmount{path};
  for (const TierMode& mode : TierModes()) {
    CAPTURE(mode.name);
    FileTierOptions options = In(folder, mode);
    CHECK(Contains(Refusal(options, 8 << 20), "wants 8.0 MiB there, and 4.0 MiB are free"));
    FileTier tier(options, 3 << 20, "rank 3");
    CHECK_FALSE(tier.direct());
    if (mode.direct) CHECK(Contains(tier.Describe(), "(page cache: memory, not a disk (tmpfs))"));
    CHECK(Contains(Refusal(options, 2 << 20), "wants 2.0 MiB there, and 1.0 MiB are free"));  // the tier has the rest
    FileLane lane(tier);
    std::string text(3 << 20, 'b'), back(3 << 20, 'z');
    lane.Write(0, text.data(), 3 << 20);
    lane.Read(0, back.data(), 3 << 20);
    CHECK(back == text);
  }
  {  // by writing, where space cannot be reserved: it ends at the same place
    const Failpoints failpoints("file_tier.fallocate,unsupported");
    FileTier tier(In(folder), 3 << 20, "rank 3");
    CHECK(Contains(Refusal(In(folder), 2 << 20), "1.0 MiB are free"));
  }
  FileTier(In(folder), 4 << 20, "rank 3");  // all of it is free again
  REQUIRE(::mount("tmpfs", path.c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, "") == 0);
  CHECK(Refusal(In(folder)) ==
        path + ": cannot make a file: Read-only file system; mount it writable, or name another folder");
}

TEST_CASE("a limit of file sizes is an error, and no signal") {
  const TempFolder folder;
  CHECK(InChild([&] {
          const rlimit limit{1 << 20, 1 << 20};
          if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
          FileTier(In(folder), 1 << 20, "rank 3");
          return Contains(Refusal(In(folder), 2 << 20),
                          "File too large; a file may not be that large: raise `ulimit -f`")
                     ? 0
                     : 2;
        }) == 0);
}

TEST_CASE("where files must have a name they lose it at once, and what a killed process left is removed by the next") {
  const TempFolder folder;
  {
    const Failpoints failpoints("file_tier.tmpfile,unsupported;file_tier.fallocate,unsupported");
    FileTier tier(In(folder), 1 << 20, "rank 3");
    CHECK(folder.Names().empty());
    FileLane lane(tier);
    lane.Write(0, "text", 4);
  }
  CHECK(InChild([&] {
          SetFailpoints("file_tier.tmpfile,unsupported;file_tier.unlink,kill");
          FileTier(In(folder), 1 << 20, "rank 3");
          return 0;
        }) == -SIGKILL);
  CHECK(folder.Names().size() == 1);
  folder.Write(".ds-nameless-folder/mine", "");  // somebody else's, of whatever name
  const Failpoints failpoints("file_tier.tmpfile,unsupported");
  FileTier tier(In(folder), 1 << 20, "rank 3");
  CHECK(folder.Names() == std::set<std::string>{".ds-nameless-folder", ".ds-nameless-folder/mine"});
}

TEST_CASE("a process that is killed while it reads and writes leaves nothing, and its space is free") {
  for (const TierMode& mode : TierModes()) {
    CAPTURE(mode.name);
    const TempFolder folder;
    const auto child = [&](const char* failpoint) {
      return InChild([&] {
        FileTier tier(In(folder, mode), 16 << 20, "rank 3");
        FileLane lane(tier);
        std::string text(1 << 20, 'c');
        lane.Write(0, text.data(), 1 << 20);
        SetFailpoints(failpoint);
        lane.StartWrite(1, text.data(), 1 << 20);
        lane.StartRead(4 << 20, text.data(), 1 << 20);
        lane.WaitAll();
        return 0;
      });
    };
    CHECK(child("file_tier.write,hit=7,kill") == -SIGKILL);
    CHECK(child("file_tier.read,hit=9,kill") == -SIGKILL);
    CHECK(folder.Names().empty());
  }
}

TEST_CASE("where a seccomp filter forbids io_uring, as in containers, threads do the work and it is said why") {
  if (!detail::BuiltWithIoUring()) return;
  const TempFolder folder;
  for (const auto& [error, reason] :
       std::vector<std::pair<int, std::string>>{{EPERM, "io_uring: not permitted: by seccomp"}, {ENOSYS, "has none"}}) {
    const int code = InChild([&, error = error, reason = reason] {
      sock_filter program[] = {
          BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)),
          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      };
      const sock_fprog filter{std::size(program), program};
      if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
        return 1;
      FileTierOptions options = In(folder);
      options.backend = IoBackend::any;
      FileTier tier(options, 1 << 20, "rank 3");
      if (tier.backend() != IoBackend::threads || !Contains(tier.Describe(), reason)) return 2;
      FileLane lane(tier);
      std::string text(700'000, 'd'), back(700'000, 'z');
      lane.Write(3, text.data(), 700'000);
      lane.Read(3, back.data(), 700'000);
      if (back != text) return 3;
      options.backend = IoBackend::io_uring;
      return Contains(Refusal(options), "permit it, or let threads read and write") ? 0 : 4;
    });
    CHECK(code == 0);
  }
}

}  // namespace ds
