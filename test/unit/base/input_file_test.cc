// Files that users name: what does not end, or is no file, is refused before anything waits for it.
#include "runtime/base/input_file.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "test/catch.h"

namespace ds {
namespace {

namespace fs = std::filesystem;

struct Folder {
  std::string path;
  Folder() {
    char pattern[] = "/tmp/ds-input-XXXXXX";
    path = ::mkdtemp(pattern);
  }
  ~Folder() { fs::remove_all(path); }
};

std::string Refusal(const std::string& path, size_t most = kMostInputBytes) {
  try {
    ReadInputFile(path, most);
    return "";
  } catch (const RuntimeError& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("Input that is no regular file is refused at once, with its kind") {
  const Folder folder;
  const std::string fifo = folder.path + "/fifo", text = folder.path + "/text", socket = folder.path + "/socket";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  std::ofstream(text) << "abc";
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, socket.c_str(), sizeof address.sun_path - 1);
  REQUIRE(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  CHECK(ReadInputFile(text) == "abc");
  CHECK(Refusal(fifo) == fifo + " is a named pipe, not a regular file");
  CHECK(Refusal("/dev/zero") == "/dev/zero is a device, not a regular file");
  CHECK(Refusal(folder.path) == folder.path + " is a folder, not a regular file");
  CHECK(Refusal(socket) == socket + " is a socket, not a regular file");
  CHECK(Refusal(text + "\n") == "cannot read " + text + "?: No such file or directory");
  CHECK(Refusal(text, 2) == text + " has more than 2 bytes, which no such file needs");
  CHECK(WhyNoFile(text).empty());
  CHECK(WhyNoFile(fifo) == "is a named pipe, not a regular file");
  CHECK(WhyNoFile(folder.path + "/absent") == "cannot be read: No such file or directory");
  ::close(fd);
}

TEST_CASE("A pipe that was handed over is read to its end, once, and kept; a long one is cut off") {
  int pipe[2];
  REQUIRE(::pipe2(pipe, O_CLOEXEC) == 0);
  const std::string path = "/dev/fd/" + std::to_string(pipe[0]);
  std::thread writer([end = pipe[1]] {
    for (int i = 0; i < 3; ++i) {
      if (::write(end, "host slots=1\n", 13) != 13) break;
    }
    ::close(end);
  });
  CHECK(ReadInputFile(path) == "host slots=1\nhost slots=1\nhost slots=1\n");
  writer.join();
  CHECK(ReadInputFile(path).size() == 39);
  ::close(pipe[0]);
  REQUIRE(::pipe2(pipe, O_CLOEXEC) == 0);
  const int other = ::fcntl(pipe[0], F_DUPFD_CLOEXEC, 200);  // another name: that above is kept
  REQUIRE(::write(pipe[1], "0123456789", 10) == 10);
  CHECK(Refusal("/dev/fd/" + std::to_string(other), 9).find("more than 9 bytes") != std::string::npos);
  ::close(other);
  ::close(pipe[0]);
  ::close(pipe[1]);
}

TEST_CASE("Links that killed processes were about to put in place are removed by the next; others stay") {
  const Folder folder;
  const fs::path latest = folder.path + "/latest";
  const std::string old_link = latest.string() + ".tmp.1", new_link = latest.string() + ".tmp.2",
                    file = latest.string() + ".tmp.3";
  fs::create_symlink("run-1", old_link);
  fs::create_symlink("run-2", new_link);
  std::ofstream(file) << "somebody's";
  const timespec before[2] = {{::time(nullptr) - 3600, 0}, {::time(nullptr) - 3600, 0}};
  for (const std::string& path : {old_link, file})
    REQUIRE(::utimensat(AT_FDCWD, path.c_str(), before, AT_SYMLINK_NOFOLLOW) == 0);
  ReplaceSymlink("run-3", latest);
  CHECK(fs::read_symlink(latest) == "run-3");
  CHECK_FALSE(fs::exists(fs::symlink_status(old_link)));
  CHECK(fs::exists(fs::symlink_status(new_link)));
  CHECK(fs::exists(file));
}

}  // namespace ds
