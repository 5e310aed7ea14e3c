#include "runtime/job/filter.h"

#include "runtime/base/error.h"
#include "test/catch.h"

namespace ds {
namespace {

const char* const kHosts = "w0 slots=4\nw1 slots=4\nw2 slots=2\n::1 slots=2\n";

std::string Show(const HostFilter& filter) {
  std::string out;
  for (const HostSlots& host : ApplyFilters(ParseHostfile(kHosts, "hosts"), filter)) {
    if (!out.empty()) out += ' ';
    out += host.host + "/";
    for (const int slot : host.slots) out += std::to_string(slot);
  }
  return out;
}

HostFilter Include(const std::string& text) { return {text, {}, {}, {}}; }
HostFilter Exclude(const std::string& text) { return {{}, text, {}, {}}; }

std::string Failure(const HostFilter& filter) {
  try {
    return "accepted: " + Show(filter);
  } catch (const UsageError& error) {
    return error.what();
  }
}

TEST_CASE("filters: include, exclude, num-nodes, num-gpus") {
  CHECK(Show({}) == "w0/0123 w1/0123 w2/01 ::1/01");
  CHECK(Show(Include("w1")) == "w1/0123");  // a bare host means all its slots
  CHECK(Show(Include("w0@w1:0,2")) == "w0/0123 w1/02");
  CHECK(Show(Include("w1:2,0@w0:3")) == "w0/3 w1/02");  // the hostfile's order
  CHECK(Show(Include("w1:1@w1:0@w1:1")) == "w1/01");    // a host named twice adds up
  CHECK(Show(Include("w1@w1:0")) == "w1/0123");
  CHECK(Show(Include("w1:3,1,3,1")) == "w1/13");
  CHECK(Show(Include("W1:1")) == "w1/1");
  CHECK(Show(Include("[::1]")) == "::1/01");
  CHECK(Show(Include("[::1]:1@w0:0")) == "w0/0 ::1/1");
  CHECK(Show(Include("[0::1]:1")) == "::1/1");
  CHECK(Show(Exclude("w0")) == "w1/0123 w2/01 ::1/01");
  CHECK(Show(Exclude("w0:1@w1:0,3@w2:0,1")) == "w0/023 w1/12 ::1/01");  // a host without slots is dropped
  CHECK(Show(Exclude("w0:0,1@w0:2,3@[::1]")) == "w1/0123 w2/01");       // named twice adds up here too
  CHECK(Show({{}, {}, 2, {}}) == "w0/0123 w1/0123");
  CHECK(Show({{}, {}, {}, 2}) == "w0/01 w1/01 w2/01 ::1/01");
  CHECK(Show({{}, {}, 2, 3}) == "w0/012 w1/012");
}

TEST_CASE("filters: each error names flag and column") {
  struct Case {
    HostFilter filter;
    const char* start;
    const char* reason;
  };
  const Case cases[] = {
      {Include("w9"), "--include:1: w9: ", "not a host of the hostfile"},
      {Include("w0@w1:0@wx"), "--include:9: wx: ", "not a host of the hostfile"},
      {Include("w0:4"), "--include:4: 4: ", "not a slot of w0"},
      {Include("w0:-1"), "--include:4: -1: ", "not a slot number"},
      {Include("w0:0-2"), "--include:4: 0-2: ", "not a slot number"},
      {Include("w0:a"), "--include:4: a: ", "not a slot number"},
      {Include("w0:1:2"), "--include:4: 1:2: ", "not a slot number"},
      {Include("w0:99999999999"), "--include:4: 99999999999: ", "not a slot of w0"},
      {Include("w0:"), "--include:4: ", "an empty part"},
      {Include("w0:1,"), "--include:6: ", "an empty part"},
      {Include("w0:1,,2"), "--include:6: ", "an empty part"},
      {Include(""), "--include:1: ", "an empty part"},
      {Include("w0@"), "--include:4: ", "an empty part"},
      {Include("@w0"), "--include:1: ", "an empty part"},
      {Include(" w0"), "--include:1:  w0: ", "not a host of the hostfile"},
      {Include("::1"), "--include:1: ::1: ", "IPv6 address goes in brackets"},
      {Include("[::1"), "--include:1: [::1: ", "bracket is not closed"},
      {Include("[::1]:"), "--include:7: ", "an empty part"},
      {Include("[::1]:2"), "--include:7: 2: ", "not a slot of ::1"},
      {Include("[]"), "--include:1: []: ", "a host is wanted"},
      {Include("w0@@w1"), "--include:4: ", "an empty part"},
      {Include("w0:,1"), "--include:4: ", "an empty part"},
      {Exclude("w0@"), "--exclude:4: ", "an empty part"},
      {Exclude("w0:1,"), "--exclude:6: ", "an empty part"},
      {Include("[::1]x"), "--include:6: x: ", "':' or '@' is wanted"},
      {Exclude("w9"), "--exclude:1: w9: ", "not a host of the hostfile"},
      {Exclude("w0:7"), "--exclude:4: 7: ", "not a slot of w0"},
      {Exclude("w0@w1@w2@[::1]"), "--exclude: ", "nothing is left"},
      {{"w0", "w1", {}, {}}, "--include and --exclude ", "give one"},
      {{"w0", {}, 1, {}}, "--include and --num-nodes ", "give one"},
      {{"w0", {}, {}, 1}, "--include and --num-gpus ", "give one"},
      {{{}, "w0", 1, {}}, "--exclude and --num-nodes ", "give one"},
      {{{}, "w0", {}, 1}, "--exclude and --num-gpus ", "give one"},
      {{{}, {}, 5, {}}, "--num-nodes: 5: ", "more nodes than there are, "},
      {{{}, {}, 0, {}}, "--num-nodes: 0: ", "not positive"},
      {{{}, {}, {}, 3}, "--num-gpus: 3: ", "more than w2 has"},
      {{{}, {}, {}, -1}, "--num-gpus: -1: ", "not positive"},
  };
  for (const Case& c : cases) {
    const std::string failure = Failure(c.filter);
    CAPTURE(failure, c.start);
    CHECK(failure.find(c.start) == 0);
    CHECK(failure.find(c.reason) != std::string::npos);
  }
}

TEST_CASE("filters: one host named many times is itself") {
  const auto hosts = ParseHostfile("w0 slots=65536\nw1 slots=1\n", "hosts");
  std::string many = "w0";
  for (int i = 0; i < 20'000; ++i) many += "@w0";
  const auto left = ApplyFilters(hosts, Include(many));
  REQUIRE(left.size() == 1);
  CHECK(left[0] == hosts[0]);
}

}  // namespace
}  // namespace ds
