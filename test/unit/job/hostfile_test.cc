#include "runtime/job/hostfile.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "runtime/base/error.h"
#include "test/catch.h"

namespace ds {
namespace {

std::string Failure(const std::string& text) {
  try {
    ParseHostfile(text, "hosts");
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

/// "user@host:slots ..." of what was read.
std::string Show(const std::string& text) {
  std::string out;
  for (const HostSlots& host : ParseHostfile(text, "hosts")) {
    if (!out.empty()) out += ' ';
    if (!host.user.empty()) out += host.user + "@";
    out += host.host + "*" + std::to_string(host.slots.size());
  }
  return out;
}

TEST_CASE("hostfile: what is read as meant") {
  CHECK(Show("w0 slots=4\nw1 slots=2\n") == "w0*4 w1*2");
  CHECK(Show("w0 slots=4\nw1 slots=2") == "w0*4 w1*2");                          // no last newline
  CHECK(Show("w0 slots=4\r\nw1 slots=2\r\n") == "w0*4 w1*2");                    // CRLF
  CHECK(Show("\xEF\xBB\xBFw0 slots=4\n") == "w0*4");                             // byte-order mark
  CHECK(Show("# top\n\n   \n\t\nw0 slots=4   # end\n#w1 slots=2\n") == "w0*4");  // blanks and comments
  CHECK(Show("w0 slots=4#tight\n") == "w0*4");
  CHECK(Show("\xEF\xBB\xBF# top\r\n\r\nw0 slots=4 # end\r\n  # last, no newline") == "w0*4");
  CHECK(Show("  w0\t slots=4 \n") == "w0*4");
  CHECK(Show("10.0.0.1 slots=1\n") == "10.0.0.1*1");
  CHECK(Show("::1 slots=1\n[fe80::2] slots=2\nfe80::3%eth0 slots=3\n") == "::1*1 fe80::2*2 fe80::3%eth0*3");
  CHECK(Show("al@w0 slots=1\nal@[::1] slots=1\nbo@10.0.0.1 slots=1\n") == "al@w0*1 al@::1*1 bo@10.0.0.1*1");
  CHECK(Show("127.0.0.1 slots=1\n127.0.0.2 slots=1\n") == "127.0.0.1*1 127.0.0.2*1");
  CHECK(Show("node-1.rack_2.example.org slots=65536\n") == "node-1.rack_2.example.org*65536");
  CHECK(Show("w0 slots=04\n") == "w0*4");
  CHECK(ParseHostfile("w slots=3\n", "h")[0].slots == std::vector<int>{0, 1, 2});
}

TEST_CASE("hostfile: errors name their place") {
  struct Case {
    const char* text;
    const char* start;
    const char* reason;
  };
  const Case cases[] = {
      {"w0", "hosts:1:3: ", "slots= is absent"},
      {"w0 slots=1\n  w1  # slots=2", "hosts:2:5: ", "slots= is absent"},
      {"w0 slots=4 max_slots=8", "hosts:1:12: ", "text after"},
      {"w0 slots=4 slots=8", "hosts:1:12: ", "text after"},
      {"w0 max-slots=3 slots=2", "hosts:1:4: ", "slots=N is wanted"},
      {"w0 slots = 4", "hosts:1:4: ", "slots=N is wanted"},
      {"w0 SLOTS=2", "hosts:1:4: ", "slots=N is wanted"},
      {"w0 slots=8x", "hosts:1:10: ", "ASCII digits"},
      {"w0 slots=", "hosts:1:10: ", "a number is wanted"},
      {"w0 slots=0", "hosts:1:10: ", "without slots"},
      {"w0 slots=-1", "hosts:1:10: ", "negative"},
      {"w0 slots=+1", "hosts:1:10: ", "ASCII digits"},
      {"w0 slots=1.0", "hosts:1:10: ", "ASCII digits"},
      {"w0 slots=\xD9\xA3", "hosts:1:10: ", "ASCII digits"},  // an Arabic-Indic digit
      {"w0 slots=65537", "hosts:1:10: ", "too large"},
      {"w0 slots=99999999999999999999", "hosts:1:10: ", "too large"},
      {"slots=3", "hosts:1:1: ", "a host is wanted"},
      {"w0 slots=1\nw1 slots=1\nW0 slots=2", "hosts:3:1: ", "the same host twice; the first is at hosts:1:1"},
      {"w0 slots=1\nal@w0 slots=2", "hosts:2:1: ", "the same host twice"},
      {"::1 slots=1\n [0:0:0:0:0:0:0:1] slots=1", "hosts:2:2: ", "the same host twice"},
      {"-oProxyCommand=x slots=1", "hosts:1:1: ", "may not begin with '-'"},
      {"al@-w slots=1", "hosts:1:4: ", "may not begin with '-'"},
      {"-al@w slots=1", "hosts:1:1: ", "not a user name"},
      {"@w slots=1", "hosts:1:1: ", "not a user name"},
      {"al@ slots=1", "hosts:1:4: ", "a host is wanted"},
      {"[] slots=1", "hosts:1:1: ", "a host is wanted"},
      {"[::1 slots=1", "hosts:1:1: ", "not an IPv6"},
      {"w0:22 slots=1", "hosts:1:1: ", "not an IPv6"},
      {"[w0] slots=1", "hosts:1:1: ", "not an IPv6"},
      {"1.2.3 slots=1", "hosts:1:1: ", "not an IPv4"},
      {"1.2.3.400 slots=1", "hosts:1:1: ", "not an IPv4"},
      {"w$0 slots=1", "hosts:1:1: ", "not a host"},
      {"w\xC3\xA9 slots=1", "hosts:1:1: ", "not a host"},
      {"w0 slots=1\rw1 slots=2", "hosts:1:10: ", "ASCII digits"},
      {"w0\vslots=1", "hosts:1:1: ", "not a host"},
      {"w0 slots=1 \xEF\xBB\xBF", "hosts:1:12: ", "text after"},  // a mark anywhere else is text
      {"", "hosts:1:1: ", "no host"},
      {"\xEF\xBB\xBF", "hosts:1:1: ", "no host"},
      {"# only\n\n", "hosts:1:1: ", "no host"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.text);
    const std::string failure = Failure(c.text);
    CAPTURE(failure);
    CHECK(failure.find(c.start) == 0);
    CHECK(failure.find(c.reason) != std::string::npos);
    CHECK(failure.find('\n') == std::string::npos);
  }
}

TEST_CASE("hostfile: a name that no name server takes is refused where it stands") {
  const std::string label(63, 'a'), name = label + "." + label + "." + label + "." + std::string(61, 'b');  // 253
  CHECK(Show(label + " slots=1\n" + name + " slots=1\n") == label + "*1 " + name + "*1");
  CHECK(Failure("w0 slots=1\nu@" + label + "a slots=1\n").find("hosts:2:3: ") == 0);
  CHECK(Failure(label + "a slots=1\n").find("its part of 64 bytes is no name's; between dots are 63 at most") !=
        std::string::npos);
  CHECK(Failure(name + "b slots=1\n").find("a name of 254 bytes; the longest that can be looked up has 253") !=
        std::string::npos);
}

TEST_CASE("hostfile: an IPv4 address in IPv6's clothes is the IPv4 address") {
  CHECK(Show("::ffff:127.0.0.1 slots=2\n") == "127.0.0.1*2");
  CHECK(Show("[::FFFF:7f00:2] slots=2\n") == "127.0.0.2*2");
  CHECK(Failure("10.0.0.1 slots=1\n::ffff:10.0.0.1 slots=1\n").find("the same host twice") != std::string::npos);
  CHECK(IsLoopback("::ffff:127.0.0.1"));
  CHECK(!IsLoopback("::ffff:10.0.0.1"));
  CHECK(CanonicalHost("::ffff:10.0.0.1") == "10.0.0.1");
}

TEST_CASE("hostfile: all errors are told, one a line") {
  const std::string failure = Failure("w0\nw1 slots=0\nw2 slots=1\n-x slots=1\n");
  CHECK(failure.find("hosts:1:3: ") == 0);
  CHECK(failure.find("\nhosts:2:10: ") != std::string::npos);
  CHECK(failure.find("\nhosts:4:1: ") != std::string::npos);
}

TEST_CASE("hostfile: a byte that ends C strings ends no host") {
  CHECK(Failure(std::string("w0\0x slots=1", 12)).find("hosts:1:1: w0?x: not a host") == 0);
  CHECK(Failure(std::string("::1\0 slots=1", 12)).find("hosts:1:1: ::1?: not an IPv6") == 0);
  CHECK(Failure(std::string("w0 slots=1\0", 11)).find("hosts:1:10: ") == 0);
}

TEST_CASE("hostfile: a folder is no hostfile; errors of a file name its path") {
  CHECK_THROWS_AS(LoadHostfile("/tmp"), UsageError);
  const std::string path = std::filesystem::temp_directory_path() / "ds-hostfile-test";
  std::ofstream(path) << "w0 slots=1\nw1 slots=none\n";
  try {
    LoadHostfile(path);
    FAIL("accepted");
  } catch (const UsageError& error) {
    CHECK(std::string(error.what()).find(path + ":2:10: slots=none: ") == 0);
  }
  std::filesystem::remove(path);
}

TEST_CASE("hostfile: a file that does not exist is the user's error") {
  try {
    LoadHostfile("/nonexistent/hosts");
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::usage);
    CHECK(std::string(error.what()).find("/nonexistent/hosts") != std::string::npos);
  }
}

TEST_CASE("loopback hosts") {
  for (const char* host :
       {"localhost", "LocalHost", "127.0.0.1", "127.0.0.2", "127.255.0.1", "::1", "0:0:0:0:0:0:0:1"}) {
    CAPTURE(host);
    CHECK(IsLoopback(host));
  }
  for (const char* host : {"w0", "10.0.0.1", "::2", "127.example.org", "localhost.example.org", ""}) {
    CAPTURE(host);
    CHECK_FALSE(IsLoopback(host));
  }
}

TEST_CASE("hostfile: a short file does not ask for much memory, nor tell of endless errors") {
  std::string hosts, wrong;
  for (int i = 0; i < 16; ++i) hosts += "h" + std::to_string(i) + " slots=65536\n";
  CHECK(ParseHostfile(hosts, "hosts").size() == 16);
  CHECK(Failure(hosts + "last slots=1\n") ==
        "hosts:17:12: slots=1: more than 1048576 slots in all; use fewer hosts or slots");
  for (int i = 0; i < 1000; ++i) wrong += "x\n";
  const std::string message = Failure(wrong);
  CHECK(std::count(message.begin(), message.end(), '\n') == 99);
}

}  // namespace
}  // namespace ds
