// The screen's writer: nobody waits for a reader that has stopped.
#include "launcher/screen/screen_writer.h"

#include <unistd.h>

#include <chrono>
#include <thread>

#include "test/catch.h"

namespace ds {
namespace {

struct Pipe {
  int ends[2];
  Pipe() { REQUIRE(::pipe(ends) == 0); }
  ~Pipe() {
    ::close(ends[0]);
    if (ends[1] >= 0) ::close(ends[1]);
  }
  std::string ReadUntil(const std::string& last) {
    std::string text;
    char block[4096];
    while (text.find(last) == std::string::npos) {
      const ssize_t n = ::read(ends[0], block, sizeof block);
      if (n <= 0) break;
      text.append(block, static_cast<size_t>(n));
    }
    return text;
  }
};

}  // namespace

TEST_CASE("What a stopped screen has no place for is dropped, and said once it goes on") {
  Pipe pipe;
  ScreenWriter writer(256 << 10);
  const std::string line = std::string(999, 'x') + "\n";
  for (int i = 0; i < 1000; ++i) writer.Write(pipe.ends[1], line);  // would block for ever
  CHECK(!writer.idle());
  const std::string text = pipe.ReadUntil("logs have them]\n");
  size_t shown = 0;
  for (size_t at = 0; (at = text.find(line, at)) != std::string::npos; at += line.size()) ++shown;
  CHECK(shown >= 256);  // what waits, and what the pipe holds
  CHECK(text.ends_with("\n" + NotShown(1000 - shown) + "\n"));
  writer.Write(pipe.ends[1], "after\n");
  CHECK(pipe.ReadUntil("after\n") == "after\n");
}

TEST_CASE("A screen that is read shows everything, in order") {
  Pipe pipe;
  std::string expected, found;
  std::thread reader([&] { found = pipe.ReadUntil("\nend\n"); });
  {
    ScreenWriter writer;
    for (int i = 0; i < 20000; ++i) {
      const std::string line = std::to_string(i) + "\n";
      writer.Write(pipe.ends[1], line);
      expected += line;
    }
    writer.Write(pipe.ends[1], "end\n");
    while (!writer.idle()) std::this_thread::yield();
  }
  reader.join();
  CHECK(found == expected + "end\n");
}

TEST_CASE("A closed screen is no matter") {
  Pipe pipe;
  ScreenWriter writer;
  writer.Write(-1, "nowhere\n");
  writer.Write(pipe.ends[1], "here\n");
  CHECK(pipe.ReadUntil("here\n") == "here\n");
}

}  // namespace ds
