// Thousands of programs that end as soon as they have begun: a child that is reaped before its number was noted, or an
// end that is told while others still start, would leave a launcher that waits for ever.
#include <sys/resource.h>

#include <algorithm>

#include "test/catch.h"
#include "test/fault/launched_job.h"

namespace ds::test {
namespace {

/// Ranks that one agent may start here: an agent wants 8 descriptors for each.
int RanksAtOnce() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<int>(std::min<rlim_t>(2000, (limit.rlim_max - 64) / 8));
}

}  // namespace

TEST_CASE("Ten thousand instant exits: none is lost") {
  const int at_once = RanksAtOnce();
  for (int left = 10000; left > 0; left -= at_once) {
    const int ranks = std::min(left, at_once);
    LaunchSetting setting;
    setting.arguments = {"--num-gpus", std::to_string(ranks), "--", "true"};
    LaunchedJob job(setting);
    REQUIRE(job.Wait(90) == 0);
    const Value summary = job.Summary();
    CHECK(Text(summary, "status") == "completed");
    CHECK(Text(summary, "world") == std::to_string(ranks));
    CHECK(job.NothingLeft());
  }
}

TEST_CASE("Among many instant exits the one that failed is the cause") {
  const int ranks = std::min(500, RanksAtOnce());
  LaunchSetting setting;
  setting.arguments = {"--num-gpus", std::to_string(ranks), "--", "sh", "-c", "[ $RANK -ne 333 ] || exit 7"};
  LaunchedJob job(setting);
  CHECK(job.Wait(90) == 7);
  CHECK(CauseOf(job.Summary(), "rank") == "333");
  CHECK(job.NothingLeft());
}

}  // namespace ds::test
