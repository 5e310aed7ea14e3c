// What the screens show.
#include "launcher/screen/screen.h"

#include <limits>

#include "launcher/job/rank_map.h"
#include "launcher/nodes/node_report.h"
#include "test/catch.h"

namespace ds {
namespace {

namespace pb = ::deepshard::v1;

LiveState Sixteen() {
  LiveState state;
  state.job.name = "quickstart";
  state.job.run_directory = "/runs/quickstart/1";
  state.job.steps = 200;
  state.last.set_step(50);
  for (uint32_t rank = 0; rank < 16; ++rank) {
    state.job.rank_hosts.push_back("127.0.0.1");
    pb::WorkerHealth health;
    health.set_rank(rank);
    health.set_state("training");
    state.ranks.push_back(health);
  }
  return state;
}

}  // namespace

TEST_CASE("The live view fits the terminal, whatever its size") {
  for (int columns : {20, 80, 200}) {
    for (int rows : {6, 24, 60}) {
      std::vector<std::string> lines = LiveRows(Sixteen(), columns, rows);
      CAPTURE(columns, rows);
      CHECK(static_cast<int>(lines.size()) < rows);
      for (const std::string& line : lines) CHECK(static_cast<int>(line.size()) < columns);
    }
  }
  CHECK(LiveRows(Sixteen(), 80, 60).size() == 4 + 16);
  CHECK(LiveRows(Sixteen(), 80, 10).back().find("ranks more") != std::string::npos);
  for (const std::string& line : LiveRows(Sixteen(), 80, 24)) CHECK(line.find('\x1b') == std::string::npos);
}

TEST_CASE("Workers' lines cannot move the cursor") {
  const bool color = true;
  CHECK(TerminalLine("plain\ttext \xc3\xa9", color) == "plain\ttext \xc3\xa9");
  CHECK(TerminalLine("\x1b[2J\x1b[31mred\x1b[0m\x1b[10A\x07", color) == "\x1b[31mred\x1b[0m");
  CHECK(TerminalLine("\x1b[", color) == "");
  CHECK(TerminalLine("a\x1b]0;title\x07"
                     "b\x1b]8;;http://h\x1b\\c\x1b(Bd\x1b"
                     "7e",
                     color) == "abcde");
  CHECK(TerminalLine(std::string_view("n\0ul", 5), color) == "nul");
  CHECK(TerminalLine("\xc2\x9b"
                     "2J\x9b"
                     "2J",
                     color) ==
        "2J\xef\xbf\xbd"
        "2J");  // CSI of 8 bits, in UTF-8 and bare
  CHECK(TerminalLine("\xff\xfe", color) == "\xef\xbf\xbd\xef\xbf\xbd");
}

TEST_CASE("Workers' colors end with their line, and are dropped where they are not wanted") {
  CHECK(TerminalLine("\x1b[1;31mred", true) == "\x1b[1;31mred\x1b[0m");
  CHECK(TerminalLine("\x1b[1;31mred\x1b[m!", true) == "\x1b[1;31mred\x1b[m!");
  CHECK(TerminalLine("\x1b[1;31mred\x1b[m!", false) == "red!");
  CHECK(WithoutColors("\x1b[1;31mred\x1b[m\x1b[2J \xff\r!") == "red\x1b[2J \xff\r!");
}

TEST_CASE("Of a progress bar its last state is shown") {
  CHECK(TerminalLine("  1%\r 50%\r100%", true) == "100%");
  CHECK(TerminalLine("  1%\r100%\r\r", true) == "100%");
  CHECK(TerminalLine("dos line\r", true) == "dos line");
}

TEST_CASE("A step as a line") {
  pb::StepRecord record;
  record.set_step(20);
  record.set_loss(2.5);
  record.set_tokens_per_second(12345);
  record.set_validation_loss(2.75);
  std::string line = StepLine(record, 200, 62);
  CHECK(line.find("step 20/200") == 0);
  CHECK(line.find("12.3k tokens/s") != std::string::npos);
  CHECK(line.find("validation 2.7500") != std::string::npos);
  CHECK(line.find("left 1 min 02 s") != std::string::npos);
  CHECK(line.find("skipped") == std::string::npos);
}

TEST_CASE("A skipped step says why") {
  pb::StepRecord record;
  record.set_step(3);
  record.set_skipped(true);
  record.set_loss(std::numeric_limits<double>::quiet_NaN());
  CHECK(StepLine(record, 200, -1).find("skipped: not finite") != std::string::npos);
  record.set_loss_scale(65536);
  CHECK(StepLine(record, 200, -1).find("skipped: not finite") != std::string::npos);
  record.set_loss(2.5);
  CHECK(StepLine(record, 200, -1).find("skipped: overflow at loss scale 65536") != std::string::npos);
}

TEST_CASE("Before the first step the live view shows no numbers") {
  LiveState state = Sixteen();
  state.last = {};
  const std::vector<std::string> lines = LiveRows(state, 80, 24);
  CHECK(lines.at(1).find("step 0/200") != std::string::npos);
  CHECK(lines.at(2) == "no step yet");
}

TEST_CASE("Agents on one machine share its cores and GPUs") {
  std::vector<HostSlots> hosts = {{"127.0.0.1", "", {0, 1}}, {"127.0.0.2", "", {0, 1}}, {"far", "", {0}}};
  std::vector<pb::NodeFacts> facts(3);
  for (auto& f : facts) {
    f.set_boot_id("here");
    f.set_cores(8);
    for (int gpu = 0; gpu < 4; ++gpu) f.add_gpus();
  }
  facts[2].set_boot_id("there");
  std::vector<NodeShare> shares = ShareMachines(hosts, facts);
  CHECK(shares[0].threads == 2);
  CHECK(shares[1].threads == 2);
  CHECK(shares[2].threads == 8);
  CHECK(shares[1].first_gpu == 2);
  CHECK(shares[2].first_gpu == 0);

  SECTION("cores are never shared to nothing") {
    for (auto& f : facts) f.set_cores(1);
    for (const NodeShare& share : ShareMachines(hosts, facts)) CHECK(share.threads == 1);
  }
}

TEST_CASE("Differences between nodes are named with their hosts") {
  std::vector<NodeReport> reports(3);
  for (int i = 0; i < 3; ++i) {
    reports[static_cast<size_t>(i)].host = "w" + std::to_string(i);
    reports[static_cast<size_t>(i)].facts.set_gpu_driver("535.1");
  }
  CHECK(Differences(reports).empty());
  reports[1].facts.set_gpu_driver("550.2");
  reports[2].clock_offset_ns = 5'000'000'000;
  std::vector<std::string> lines = Differences(reports);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0] == "GPU driver: 535.1 on w[0,2]; 550.2 on w1");
  CHECK(lines[1].find("5.0 s ahead on w2") != std::string::npos);
}

}  // namespace ds
