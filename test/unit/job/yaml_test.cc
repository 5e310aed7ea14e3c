#include "runtime/job/yaml.h"

#include "runtime/base/error.h"
#include "test/catch.h"

namespace ds {
namespace {

std::string Failure(const std::string& text) {
  try {
    ParseYaml(text, "f.yaml");
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST_CASE("YAML values keep their text and their place") {
  const Value root = ParseYaml("# top\na: 5e8\nb:\n  c: [1, 'x y', \"2\"]\n  d: ~\n  e:\nf: |\n  block\n", "f.yaml");
  const Value& a = *root.Find("a");
  CHECK(a.text == "5e8");
  CHECK_FALSE(a.quoted);
  CHECK(a.where.str() == "f.yaml:2:4");
  CHECK(a.key_where.str() == "f.yaml:2:1");
  const Value& c = *root.Find("b")->Find("c");
  CHECK(c.where.str() == "f.yaml:4:6");
  CHECK(c.key_where.str() == "f.yaml:4:3");
  REQUIRE(c.items.size() == 3);
  CHECK(c.items[1].text == "x y");
  CHECK(c.items[1].where.str() == "f.yaml:4:10");
  CHECK(c.items[1].quoted);
  CHECK(c.items[2].quoted);
  CHECK(root.Find("b")->Find("d")->is_null());
  CHECK(root.Find("b")->Find("e")->is_null());
  CHECK(root.Find("f")->text == "block\n");
  CHECK(ParseYaml("", "f").is_null());
  CHECK(ParseYaml("# only\n", "f").is_null());
  CHECK(ParseYaml("\xEF\xBB\xBF"
                  "a: 1\r\nb: 2\r\n",
                  "f")
            .Find("b")
            ->text == "2");
  CHECK(ParseYaml("---\na: 1\n", "f").Find("a")->text == "1");
  CHECK(ParseYaml("a: !!str 5", "f").Find("a")->quoted);
}

TEST_CASE("YAML errors name their place") {
  struct Case {
    const char* text;
    const char* where;
    const char* reason;
  };
  const Case cases[] = {
      {"a: 1\nb: [1,\nc: 2\n", "f.yaml:", "not YAML"},
      {"a:\n\tb: 1\n", "f.yaml:2:", "spaces, not tabs"},
      {"a: \"x\n", "f.yaml:2:", "not YAML"},
      {"a: 'x", "f.yaml:1:", "not YAML"},
      {"a: 1\n b: 2\n", "f.yaml:2:", "not YAML"},
      {"a: 1\n---\nb: 2\n", "f.yaml:2:1: ", "second document"},
      {"a: 1\nb: 2\na: 3\n", "f.yaml:3:1: a: ", "duplicate key; the first is at f.yaml:1:1"},
      {"[a, b]: 1\n", "f.yaml:1:1: ", "list or map as a key"},
      {": 1\n", "f.yaml:1:1: ", "empty key"},
      {"a: &x [*x]\n", "f.yaml:1:8: ", "inside of what it names"},
      {"a: *nowhere\n", "f.yaml:1:", "not YAML"},
      {"a: &x {b: 1}\nc:\n  <<: *x\n", "f.yaml:3:3: ", "merge keys"},
      {"a: !ruby/object x\n", "f.yaml:1:4: ", "has no meaning"},
      {"a: x\xFFy\n", "f.yaml:1:5: ", "not UTF-8"},
      {"a: 1\nb: x\x01y\n", "f.yaml:2:5: ", "control character"},
  };
  for (const Case& c : cases) {
    const std::string failure = Failure(c.text);
    CAPTURE(c.text, failure);
    CHECK(failure.find(c.where) == 0);
    CHECK(failure.find(c.reason) != std::string::npos);
  }
}

TEST_CASE("YAML aliases are copies, bounded") {
  const Value root = ParseYaml("a: &x {b: 1}\nc: *x\n", "f");
  CHECK(root.Find("c")->Find("b")->text == "1");
  CHECK(root.Find("c")->key_where.str() == "f:2:1");
  std::string laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    const std::string before = "*a" + std::to_string(i - 1), name = "a" + std::to_string(i);
    laughs += name + ": &" + name + " [" + before;
    for (int j = 0; j < 9; ++j) laughs += ", " + before;
    laughs += "]\n";
  }
  CHECK(Failure(laughs).find("more than 100000 values") != std::string::npos);
  CHECK(Failure(std::string(200, '[') + std::string(200, ']')).find("nested deeper") != std::string::npos);
}

TEST_CASE("YAML duplicate keys can be collected") {
  std::vector<std::string> duplicates;
  const Value root = ParseYaml("a: 1\na: 2\nb: {c: 1, c: {d: 1}}\n", "f", &duplicates);
  CHECK(duplicates.size() == 2);
  CHECK(root.Find("a")->text == "1");
  CHECK(root.Find("b")->Find("c")->text == "1");
}

TEST_CASE("YAML scalars read back as the same string") {
  for (const char* text : {"plain", "", "5e8", "true", "Null", "~", "a b", "a: b", "# x", "'q'", "\"q\"", "a\nb\tc",
                           "-x", "*a", "\xC3\xA9", "/a/b-c_d.txt", "yes", "[x]", "\x7F"}) {
    CAPTURE(text);
    const Value back = ParseYaml("k: " + YamlScalar(text), "f");
    CHECK(back.Find("k")->kind == Value::Kind::scalar);
    CHECK(back.Find("k")->text == text);
  }
}

TEST_CASE("YAML anchors and aliases do not make much of little") {
  // 90 lists inside of one another, each kept under an anchor of its own with all that is in it.
  std::string nested = "a: ";
  for (int i = 0; i < 90; ++i) nested += "&a" + std::to_string(i) + " [";
  for (int i = 0; i < 4000; ++i) nested += "x,";
  CHECK(Failure(nested + std::string(90, ']')).find("more than 100000 values") != std::string::npos);

  std::string repeated = "a: &a " + std::string(100'000, 'x') + "\nb: [";
  for (int i = 0; i < 1000; ++i) repeated += "*a,";
  CHECK(Failure(repeated + "]").find("repeat more than 16 MiB of text") != std::string::npos);

  const std::string deep = std::string(60, '[') + "x" + std::string(60, ']');
  const std::string deeper = std::string(60, '[') + "*a" + std::string(60, ']');
  CHECK(Failure("a: &a " + deep + "\nb: [*a]\n") == "accepted");
  CHECK(Failure("a: &a " + deep + "\nb: " + deeper + "\n").find("nested deeper than 100 levels, aliases counted") !=
        std::string::npos);
}

TEST_CASE("a duplicate among many keys is found, and keys stay on their line of the message") {
  std::string many;
  for (int i = 0; i < 5000; ++i) many += "k" + std::to_string(i) + ": 1\n";
  CHECK(Failure(many) == "accepted");
  CHECK(Failure(many + "k77: 2\n") == "f.yaml:5001:1: k77: duplicate key; the first is at f.yaml:78:1, remove one");
  CHECK(Failure("\"a\\nb\": 1\n\"a\\nb\": 2\n").find("f.yaml:2:1: a?b: duplicate key") == 0);
}

}  // namespace
}  // namespace ds
