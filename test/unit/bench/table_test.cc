// Promise: a line of the table says what was achieved, of which limit, and how much of it that is.
#include "runtime/bench/table.h"

#include "test/catch.h"

namespace ds {

TEST_CASE("rates have three digits and the unit that fits") {
  CHECK(RateText(989.4e12, RateUnit::flops) == "989 TFLOP/s");
  CHECK(RateText(70.64e9, RateUnit::flops) == "70.6 GFLOP/s");
  CHECK(RateText(999.6e9, RateUnit::bytes) == "1.00 TB/s");
  CHECK(RateText(4.8e12, RateUnit::bytes) == "4.80 TB/s");
  CHECK(RateText(12, RateUnit::bytes) == "12.0 B/s");
  CHECK(RateText(31.4e-6, RateUnit::seconds) == "31.4 us");
  CHECK(RateText(2, RateUnit::seconds) == "2.00 s");
  CHECK(RateText(2e3, RateUnit::seconds) == "2000 s");
  CHECK(RateText(0, RateUnit::seconds) == "0.00 ns");
}

TEST_CASE("a line has what, shape, achieved, limit, percent and note") {
  const std::string line =
      LineText({"matmul square", "8192 x 8192 x 8192 bf16", 742e12, 989.4e12, RateUnit::flops, "algorithm 66"});
  for (const char* part :
       {"matmul square", "8192 x 8192 x 8192 bf16", "742 TFLOP/s", "989 TFLOP/s", "75%", "algorithm 66"})
    CHECK(line.find(part) != std::string::npos);
}

TEST_CASE("what was not measured, or has no known limit, has a dash and no percent") {
  const std::string line = LineText({"adamw step", "n", 0, 1e9, RateUnit::bytes, "left out: no time"});
  CHECK(line.find(" - ") != std::string::npos);
  CHECK(line.find('%') == std::string::npos);
  CHECK(line.find("left out: no time") != std::string::npos);
  const std::string unlimited = LineText({"read", "n", 1e9, 0, RateUnit::bytes, ""});
  CHECK(unlimited.find('%') == std::string::npos);
  CHECK(unlimited.back() != ' ');
}

}  // namespace ds
