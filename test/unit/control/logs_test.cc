// Logs: the limit on lines, rotation, the ranks that options name.
#include <filesystem>
#include <fstream>

#include "agent/line_limiter.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/run/rank_set.h"
#include "runtime/run/rotating_log.h"
#include "test/catch.h"

namespace ds {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

std::vector<std::string> Numbers(int first, int last) {
  std::vector<std::string> lines;
  for (int i = first; i <= last; ++i) lines.push_back(std::to_string(i));
  return lines;
}

std::string Show(const std::vector<OutputLine>& lines) {
  std::string text;
  for (const OutputLine& line : lines) text += (line.error_stream ? "!" : "") + line.text + "\n";
  return text;
}

std::string Dropped(int count) {
  return "![ds-agent: " + std::to_string(count) + (count == 1 ? " line" : " lines") +
         " dropped in the last second: more than launch.log_lines_per_second, 10]\n";
}

}  // namespace

TEST_CASE("What a rank may log at once, then a second: the rest is dropped and said") {
  LineLimiter limiter(10);
  LineLimiter::Time now{};
  std::vector<OutputLine> burst = limiter.Admit(now, false, Numbers(1, 250));
  CHECK(burst.size() == 200);  // 20 seconds' worth
  CHECK(burst.back().text == "200");
  CHECK(limiter.due_at() == now + milliseconds(1000));
  CHECK(limiter.Admit(now + milliseconds(900), true, Numbers(251, 259)).empty());  // none in the middle of a hole
  CHECK(limiter.Due(now + milliseconds(999)).empty());
  CHECK(Show(limiter.Due(now + milliseconds(1000))) == Dropped(59));
  CHECK(limiter.Due(now + milliseconds(1000)).empty());
  std::vector<OutputLine> next = limiter.Admit(now + milliseconds(1000), true, Numbers(260, 300));
  CHECK(next.size() == 10);
  CHECK(next.front() == OutputLine{true, "260"});
  CHECK(limiter.dropped_in_all() == 59 + 31);
  // The writer is silent for long: its next lines come behind the notice, and it may write as much at once as before.
  next = limiter.Admit(now + milliseconds(100000), false, Numbers(1, 200));
  CHECK(next.size() == 201);
  CHECK(Show({next[0]}) == Dropped(31));
}

TEST_CASE("The last lines of a rank are kept, however much it wrote") {
  LineLimiter limiter(10);
  LineLimiter::Time now{};
  limiter.Admit(now, false, Numbers(1, 1000));
  limiter.Admit(now, true, {"the reason"});
  std::string end = Show(limiter.End());
  CHECK(end.starts_with(Dropped(781) + "982\n"));
  CHECK(end.ends_with("\n1000\n!the reason\n"));
  CHECK(limiter.dropped_in_all() == 781);
  CHECK(limiter.End().empty());

  LineLimiter few(10);
  few.Admit(now, false, Numbers(1, 205));
  CHECK(Show(few.End()) == "201\n202\n203\n204\n205\n");  // nothing was dropped in the end
  CHECK(few.dropped_in_all() == 0);

  LineLimiter large(10);
  large.Admit(now, false, std::vector<std::string>(300, std::string(1 << 20, 'x')));
  CHECK(large.End().size() == 2);  // the notice and one line: memory is bounded
}

TEST_CASE("Without a limit every line passes") {
  LineLimiter limiter(0);
  CHECK(limiter.Admit({}, false, Numbers(1, 1000000)).size() == 1000000);
  CHECK(limiter.End().empty());
}

TEST_CASE("A log is rotated at whole lines, and goes on where it was left") {
  char pattern[] = "/tmp/ds-log-XXXXXX";
  const fs::path folder = ::mkdtemp(pattern);
  const fs::path path = folder / "rank-0.log";
  {
    RotatingLog log(path, {10, 2});
    for (const char* line : {"1234", "5678", "9", "a line that is longer than a file", "b", "c"}) log.Append(line);
  }
  CHECK(ReadFile(path) == "b\nc\n");
  CHECK(ReadFile(path.string() + ".1") == "a line that is longer than a file\n");
  CHECK(ReadFile(path.string() + ".2") == "9\n");  // "1234", "5678" were older
  CHECK(!fs::exists(path.string() + ".3"));
  {
    RotatingLog log(path, {10, 2});
    log.Append("1234567");
    log.Append("8");
  }
  CHECK(ReadFile(path) == "1234567\n8\n");
  CHECK(ReadFile(path.string() + ".1") == "b\nc\n");
  {
    RotatingLog log(path, {10, 0});
    log.Append("alone");
  }
  CHECK(ReadFile(path) == "alone\n");
  CHECK(ReadFile(path.string() + ".1") == "b\nc\n");
  {
    RotatingLog log(path, {0, 4});  // never
    log.Append(std::string(100, 'x'));
  }
  CHECK(ReadFile(path).size() == 6 + 101);
  fs::remove_all(folder);
}

TEST_CASE("Ranks as options name them") {
  const auto show = [](const std::string& text, int world) {
    const RankSet set = ParseRankSet("--tee", text, world);
    std::string shown;
    for (int rank = 0; rank < world; ++rank) shown += set.Has(rank) ? 'x' : '.';
    return shown;
  };
  CHECK(show("", 3) == "xxx");
  CHECK(show("all", 3) == "xxx");
  CHECK(show("none", 3) == "...");
  CHECK(show("0", 3) == "x..");
  CHECK(show("0,4-6,5", 8) == "x...xxx.");
  const auto failure = [](const std::string& text) {
    try {
      ParseRankSet("--tee", text, 4);
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  CHECK(failure("4") == "--tee: 4: no such rank; the job has ranks 0 to 3");
  CHECK(failure("0,") == "--tee: an empty part; write all, none, or ranks as in 0,4-7");
  CHECK(failure("0-") == "--tee: `0-`: a rank is missing; write all, none, or ranks as in 0,4-7");
  CHECK(failure("-1") == "--tee: `-1`: a rank is missing; write all, none, or ranks as in 0,4-7");
  CHECK(failure("3-1") == "--tee: 3-1: the range runs backwards");
  CHECK(failure("x").find("`x`: not a rank") != std::string::npos);
  CHECK(failure("99999999999") == "--tee: 99999999999: no such rank; the job has ranks 0 to 3");
  CHECK(failure("1-2-3").find("not a rank") != std::string::npos);
}

}  // namespace ds
