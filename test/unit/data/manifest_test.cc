#include "runtime/plan/manifest.h"

#include <cmath>
#include <filesystem>
#include <limits>

#include "runtime/base/checksum.h"
#include "runtime/base/error.h"
#include "test/unit/data/temp_folder.h"

namespace ds {
namespace {

using test::Contains;
using test::MessageOf;

Manifest Example() {
  Manifest m;
  m.training = {12,      3456,      96,     11,
                65536.0, 7,         1,      18446744073709551615u,
                4,       0.1 + 0.2, "data", "job:\n  name: \"x\"\n# \xc3\xa9\n"};
  m.written_ns = 1'700'000'000'123'456'789;
  m.ranks = 2;
  m.parameters = {{"a.weight", Shape{2, 3}}, {"b", Shape{5}}};
  m.files = {{"rank-0.safetensors", 100, 1}, {"rank-1.safetensors", 200, 0xffffffffffffffffu}};
  m.slices = {{"a.weight", StateKind::master, 0, 4, "rank-0.safetensors", "a.weight/master@0"},
              {"a.weight", StateKind::master, 4, 2, "rank-1.safetensors", "a.weight/master@4"},
              {"a.weight", StateKind::moment1, 0, 6, "rank-1.safetensors", "a.weight/moment1"},
              {"b", StateKind::master, 0, 5, "rank-1.safetensors", "b/master"}};
  return m;
}

/// `text` with its checksum made right again.
std::string Sealed(std::string text) {
  const size_t tail = text.rfind(",\"xxh64\":\"");
  return text.substr(0, tail) + ",\"xxh64\":\"" + ChecksumText(Checksum(text.substr(0, tail))) + "\"}\n";
}

std::string Replace(std::string text, const std::string& what, const std::string& by) {
  const size_t at = text.find(what);
  REQUIRE(at != std::string::npos);
  return text.replace(at, what.size(), by);
}

}  // namespace

TEST_CASE("a manifest comes back equal, doubles bit for bit") {
  for (double loss : {0.1 + 0.2, 5e-324, 1.7976931348623157e308, -0.0, std::numeric_limits<double>::infinity()}) {
    Manifest m = Example();
    m.training.final_loss = loss;
    const Manifest back = ParseManifest(ToJson(m), "m");
    CHECK(std::signbit(back.training.final_loss) == std::signbit(loss));
    CHECK(back.training.final_loss == loss);
    CHECK(ToJson(back) == ToJson(m));
    CHECK(back.training.seed == m.training.seed);
    CHECK(back.training.job_yaml == m.training.job_yaml);
    CHECK(back.parameters == m.parameters);
    CHECK(back.files[1].xxh64 == m.files[1].xxh64);
    CHECK(back.written_ns == m.written_ns);
  }
  Manifest m = Example();
  m.training.final_loss = std::nan("");
  CHECK(std::isnan(ParseManifest(ToJson(m), "m").training.final_loss));
}

TEST_CASE("any flipped bit and any cut in a manifest is an error that names it") {
  const std::string whole = ToJson(Example());
  for (size_t at = 0; at < whole.size(); ++at)
    for (int bit : {0, 3, 7}) {
      std::string text = whole;
      text[at] = static_cast<char>(text[at] ^ (1 << bit));
      const std::string message = MessageOf<RuntimeError>([&] { ParseManifest(text, "run/manifest.json"); });
      if (!Contains(message, "run/manifest.json: the manifest is")) FAIL_CHECK("byte " << at << ": " << message);
    }
  for (size_t size = 0; size < whole.size(); ++size) {
    CAPTURE(size);
    CHECK_THROWS_AS(ParseManifest(whole.substr(0, size), "m"), RuntimeError);
  }
  CHECK_THROWS_AS(ParseManifest(whole + "\n", "m"), RuntimeError);
}

TEST_CASE("a manifest of another version or format says so") {
  const std::string whole = ToJson(Example());
  auto error = [&](const std::string& what, const std::string& by) {
    return MessageOf<RuntimeError>([&] { ParseManifest(Sealed(Replace(whole, what, by)), "m"); });
  };
  CHECK(Contains(error("\"version\":1", "\"version\":2"), "its version is 2; this program reads version 1"));
  CHECK(Contains(error("deepshard-checkpoint", "other"), "its format is `other`"));
  CHECK(Contains(error("\"step\"", "\"stop\""), "lacks `step`"));
  CHECK(Contains(error("\"step\":12", "\"step\":-1"), "negative"));
  CHECK(Contains(error("\"step\":12", "\"step\":\"x\""), "m:1:"));
  CHECK(Contains(error("\"ranks\":", "\"ranks\":4294967297,\"_\":"), "`ranks` is impossible: 4294967297"));
  CHECK(Contains(error("\"data_width\":", "\"data_width\":4294967297,\"_\":"), "`data_width` is impossible"));
  CHECK(Contains(error("rank-0.safetensors\",\"bytes\"", "../x\",\"bytes\""), "not a name of a file"));
  CHECK(Contains(error("\"moment1\"", "\"moment9\""), "moment9"));
  CHECK(Contains(error("[2,3]", "[2,0]"), "impossible shape"));
  CHECK(Contains(error("[2,3]", "[]"), "dimensions"));
}

TEST_CASE("a manifest of a size that none has is refused unread") {
  test::TempFolder folder;
  const std::string path = folder.Write("manifest.json", "{");
  std::filesystem::resize_file(path, uintmax_t{8} << 30);  // a hole
  const std::string message = MessageOf<RuntimeError>([&] { ReadManifest(folder.path()); });
  CHECK(Contains(message, path + ": it has 8589934592 bytes"));
  CHECK(Contains(message, "damaged"));
}

TEST_CASE("what a manifest says is quoted on one line of its error") {
  const std::string text = ToJson(Example());
  for (const std::string& format : {std::string("two\\nlines"), std::string(5000, 'x')}) {
    const std::string damaged = Sealed(Replace(text, "deepshard-checkpoint", format));
    const std::string message = MessageOf<RuntimeError>([&] { ParseManifest(damaged, "m"); });
    CHECK(Contains(message, "m: its format is `"));
    CHECK(message.find('\n') == std::string::npos);
    CHECK(message.size() < 1100);
  }
  std::string no_number = text;
  no_number[no_number.size() - 6] = '\n';  // within the checksum
  const std::string message = MessageOf<RuntimeError>([&] { ParseManifest(no_number, "m"); });
  CHECK(Contains(message, "it states none"));
  CHECK(message.find('\n') == std::string::npos);
}

TEST_CASE("slices must cover every parameter exactly once") {
  auto error = [](auto change) {
    Manifest m = Example();
    change(m);
    return MessageOf<RuntimeError>([&] { ParseManifest(ToJson(m), "m"); });
  };
  CHECK(Contains(error([](Manifest& m) { m.slices[0].count = 3; }),
                 "elements [3, 4) of master of parameter a.weight are missing"));
  CHECK(Contains(error([](Manifest& m) { m.slices[1].begin = 3; }), "held twice"));
  CHECK(Contains(error([](Manifest& m) { m.slices[1].count = 1; }), "elements [5, 6)"));
  CHECK(Contains(error([](Manifest& m) { m.slices[1].count = 3; }), "not within its 6 elements"));
  CHECK(Contains(error([](Manifest& m) { m.slices[0].count = 0; }), "not within"));
  CHECK(Contains(error([](Manifest& m) { m.slices.erase(m.slices.begin()); }), "missing"));
  CHECK(Contains(error([](Manifest& m) { m.slices.pop_back(); }), "parameter b has no values"));
  CHECK(Contains(error([](Manifest& m) { m.slices[3].file = "rank-9.safetensors"; }), "not listed"));
  CHECK(Contains(error([](Manifest& m) { m.files.push_back(m.files[0]); }), "listed twice"));
}

}  // namespace ds
