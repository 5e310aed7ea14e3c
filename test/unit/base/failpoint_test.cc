// Promise: a failpoint fires at the place, on the rank, in the attempt and at the hit that it names, and nowhere else.
#include "runtime/base/failpoint.h"

#include <cerrno>
#include <chrono>
#include <cmath>
#include <limits>

#include "runtime/base/error.h"
#include "test/catch.h"

namespace ds {
namespace {

/// Takes the failpoints away again.
struct Cleared {
  ~Cleared() { SetFailpoints(""); }
};

bool Fires(const std::string& name) {
  try {
    Failpoint(name);
    return false;
  } catch (const RuntimeError&) {
    return true;
  }
}

TEST_CASE("a failpoint matches names, with '*' for any run of characters") {
  const Cleared cleared;
  SetFailpoints("step:5/BackwardWeight layer1*mb0,throw");
  CHECK(FailpointsSet());
  CHECK_FALSE(Fires("step:5/BackwardWeight layer2.mlp mb0"));
  CHECK_FALSE(Fires("step:5/BackwardWeight layer1.mlp mb01"));
  CHECK(Fires("step:5/BackwardWeight layer1.mlp mb0"));
  CHECK_FALSE(Fires("step:5/BackwardWeight layer1.mlp mb0"));  // once
}

TEST_CASE("a failpoint keeps to its rank, attempt and hit") {
  const Cleared cleared;
  SetFailpoints("a,rank=1,attempt=2,throw;b,hit=3,throw");
  SetFailpointScope(0, 2);
  CHECK_FALSE(Fires("a"));
  SetFailpointScope(1, 1);
  CHECK_FALSE(Fires("a"));
  SetFailpointScope(1, 2);
  CHECK(Fires("a"));
  CHECK_FALSE(Fires("b"));
  CHECK_FALSE(Fires("b"));
  CHECK(Fires("b"));
}

TEST_CASE("numbers that are not finite come at every match, or at the one named") {
  const Cleared cleared;
  SetFailpoints("a,nan;b,hit=2,inf");
  for (int i = 0; i < 2; ++i) {
    CHECK_FALSE(Fires("a"));
    REQUIRE(FailpointNumber("a"));
    CHECK(std::isnan(*FailpointNumber("a")));
  }
  CHECK_FALSE(FailpointNumber("b"));
  CHECK(FailpointNumber("b") == std::numeric_limits<double>::infinity());
  CHECK_FALSE(FailpointNumber("b"));
  CHECK_FALSE(FailpointNumber("c"));
}

TEST_CASE("a failpoint in front of an operation says what the system would") {
  const Cleared cleared;
  SetFailpoints("a,enospc;b,eio;c,enospc");
  CHECK(FailpointError("a") == ENOSPC);
  CHECK(FailpointError("a") == 0);
  CHECK(FailpointError("b") == EIO);
  try {
    Failpoint("c");
    FAIL("nothing was thrown");
  } catch (const RuntimeError& error) {
    CHECK(std::string(error.what()) == "failpoint c: No space left on device");
  }
}

TEST_CASE(
    "what an operation is told lasts: slow, short and unsupported come at every match, beside an error at its one") {
  const Cleared cleared;
  SetFailpoints("a,slow=30;a,short;a,hit=2,eio;b,unsupported;c,slow=1,hit=2");
  const FailpointOutcome first = FailpointAt("a"), second = FailpointAt("a"), third = FailpointAt("a");
  CHECK((first.error == 0 && first.delay == 30 && first.cut));
  CHECK((second.error == EIO && second.delay == 30));
  CHECK((third.error == 0 && third.delay == 30 && third.cut));
  for (int i = 0; i < 2; ++i) CHECK(FailpointError("b") == EOPNOTSUPP);
  CHECK(FailpointAt("c").delay == 0);
  CHECK(FailpointAt("c").delay == 1);
  CHECK(FailpointAt("c").delay == 0);
  SetFailpoints("d,slow=30");
  const auto begin = std::chrono::steady_clock::now();
  Failpoint("d");
  CHECK(std::chrono::steady_clock::now() - begin >= std::chrono::milliseconds(30));
}

TEST_CASE("a bad entry is refused, and none is none") {
  const Cleared cleared;
  for (const char* bad :
       {"a", "a,explode", "a,rank=x,kill", "a,color=1,kill", ",kill", "a,hit=0,nan", "a,slow", "a,slow=x", "a,hit=2"})
    CHECK_THROWS_AS(SetFailpoints(bad), UsageError);
  SetFailpoints("");
  CHECK_FALSE(FailpointsSet());
  CHECK_FALSE(Fires("a"));
}

}  // namespace
}  // namespace ds
