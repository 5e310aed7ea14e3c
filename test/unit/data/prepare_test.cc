// Promise: a conversion's output is a function of inputs and options alone: not of threads, nor of how often it was
// interrupted or killed; and nothing is visible before it is whole.
#include "runtime/data/prepare.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <set>
#include <thread>

#include "runtime/base/error.h"
#include "runtime/base/failpoint.h"
#include "test/unit/data/compress.h"
#include "test/unit/data/temp_folder.h"

namespace ds {
namespace {

using test::Contains;
using test::MessageOf;
using test::TempFolder;
namespace fs = std::filesystem;

std::string Digits(int i) { return std::to_string(static_cast<int64_t>(i) * 7919 % 100003); }

/// Texts short and long (of several parts), JSON lines, both plain and compressed, under FOLDER/in.
void WriteInputs(const TempFolder& folder) {
  std::string lines, text;
  for (int i = 0; i < 3000; ++i) {
    lines += "{\"text\": \"";
    for (int k = 0; k < i % 97; ++k) lines += Digits(i + k) + " ";
    lines += "\", \"id\": " + std::to_string(i) + "}\n";
  }
  for (int i = 0; text.size() < (5 << 20) / 2; ++i) text += Digits(i) + (i % 9 ? " " : "\n");
  folder.Write("in/a.jsonl", lines);
  folder.Write("in/b.txt", text);
  folder.Write("in/c.jsonl.zst", test::Zstd(lines + "{\"text\": \"the last\"}"));
  folder.Write("in/d.txt.gz", test::Gzip("short\n"));
  folder.Write("in/e.txt", "");
}

PrepareOptions Options(const TempFolder& folder, const std::string& output) {
  PrepareOptions options;
  options.inputs = {folder / "in"};
  options.output = folder / output;
  options.threads = 2;
  options.piece_bytes = 300000;
  return options;
}

/// Names and bytes of everything beside the inputs.
std::map<std::string, std::string> Outputs(const TempFolder& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder.path())) {
    const std::string name = fs::relative(entry.path(), folder.path()).string();
    if (entry.is_regular_file() && !name.starts_with("in/")) files[name] = ReadFile(entry.path());
  }
  return files;
}

/// The documents of a token file, as texts.
std::vector<std::string> Documents(const fs::path& path) {
  std::vector<std::string> documents(1);
  for (const fs::path& name : TokenFileSet(path)) {
    const TokenFile file(name);
    file.Verify();
    std::vector<int32_t> tokens(static_cast<size_t>(file.info().tokens));
    file.Read(0, file.info().tokens, tokens.data());
    for (int32_t token : tokens) {
      if (token == 256)
        documents.emplace_back();
      else
        documents.back() += static_cast<char>(token);
    }
  }
  REQUIRE(documents.back().empty());
  documents.pop_back();
  return documents;
}

std::vector<std::string> Sorted(std::vector<std::string> texts) {
  std::sort(texts.begin(), texts.end());
  return texts;
}

/// Runs ds-convert data; returns what the shell tells of its end.
int Convert(const TempFolder& folder, const std::string& arguments, const std::string& failpoints = "") {
  const std::string command = "cd '" + folder.path().string() + "' && DS_FAILPOINT='" + failpoints + "' " + DS_BIN_DIR +
                              "/ds-convert data " + arguments + " > log 2>&1";
  const int status = std::system(("sh -c \"" + command + "\"").c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

TEST_CASE("any number of threads and any piece size make the same files") {
  TempFolder one, many;
  WriteInputs(one);
  WriteInputs(many);
  PrepareOptions options = Options(one, "a.tok");
  options.threads = 1;
  options.piece_bytes = int64_t{1} << 40;
  const PrepareResult result = PrepareTokens(options);
  CHECK(result.empty_documents == 2 * ((3000 + 96) / 97) + 1);
  CHECK(result.sets[0].documents + result.empty_documents == 6004);
  CHECK(result.input_files == 5);
  CHECK(result.sets[0].tokens == result.text_bytes + result.sets[0].documents);
  for (const int threads : {1, 3, 8}) {
    options = Options(many, "a.tok");
    options.threads = threads;
    options.piece_bytes = threads * 70001;
    options.force = true;
    fs::remove(many / "a.tok");
    PrepareTokens(options);
    REQUIRE(Outputs(many) == Outputs(one));
  }
}

TEST_CASE("a conversion that is stopped goes on where it was, and its output is that of an uninterrupted one") {
  TempFolder whole, stopped;
  WriteInputs(whole);
  WriteInputs(stopped);
  auto with = [](PrepareOptions options) {
    options.shuffle_seed = 5;
    options.shard_tokens = 700001;
    options.validation_fraction = 0.2;
    return options;
  };
  PrepareTokens(with(Options(whole, "a.tok")));

  PrepareOptions options = with(Options(stopped, "a.tok"));
  std::vector<std::string> said;
  options.say = [&](const std::string& sentence) { said.push_back(sentence); };
  int64_t calls = 0, stop_at = 2;
  bool writing = false;
  options.progress = [&](const PrepareProgress& progress) {
    CHECK(progress.done >= 0);
    CHECK(progress.total >= progress.done);
    writing = progress.writing;
    if (++calls == stop_at) throw Error(static_cast<ExitCode>(130), "stop");
  };
  int stops = 0;
  for (bool finished = false; !finished; ++stops) {
    REQUIRE(stops < 1000);
    calls = 0;
    stop_at = writing ? 1000 : 2;  // no progress without at least one unit
    said.clear();
    try {
      PrepareTokens(options);
      finished = true;
    } catch (const Error& error) {
      CHECK(static_cast<int>(error.code()) == 130);
      CHECK(Contains(said.back(), "a.tok.partial: the same command goes on"));
      for (const auto& [name, bytes] : Outputs(stopped)) CHECK(name.starts_with("a.tok.partial/"));
    }
    if (stops > 0) CHECK(Contains(said.front(), "going on with an interrupted conversion"));
  }
  CHECK(stops > 4);
  CHECK(Outputs(stopped) == Outputs(whole));
}

TEST_CASE("a conversion that is killed anywhere goes on, and leaves nothing behind") {
  TempFolder whole, killed;
  WriteInputs(whole);
  WriteInputs(killed);
  const std::string arguments =
      "--input in --output a.tok --threads 2 --piece-bytes 1MB --shard-tokens 1500000 --validation-fraction 0.3";
  REQUIRE(Convert(whole, arguments) == 0);
  fs::remove(whole / "log");
  killed.Write("a-train.tok.tmp.12345.0", "left by an earlier version");
  killed.Write("a.tok.partial/journal.tmp.12345", "left by a kill while the journal was written");
  for (const char* point : {"convert.piece,hit=2,kill", "convert.piece,hit=1,kill", "convert.rename,hit=1,kill",
                            "convert.rename,hit=2,kill"}) {
    CAPTURE(point);
    REQUIRE(Convert(killed, arguments, point) == 137);
    CHECK(fs::exists(killed / "a.tok.partial/journal"));
    CHECK_FALSE(fs::exists(killed / "a-validation-00000-of-00002.tok"));
  }
  REQUIRE(Convert(killed, arguments) == 0);
  CHECK(Contains(ReadFile(killed / "log"), "going on with an interrupted conversion"));
  fs::remove(killed / "log");
  CHECK(Outputs(killed) == Outputs(whole));
  REQUIRE(Convert(killed, arguments) == 0);
  CHECK(Contains(ReadFile(killed / "log"), "(unchanged)"));
}

TEST_CASE("work of other inputs or options is discarded with a sentence that says so; damaged work is not used") {
  TempFolder folder, fresh;
  WriteInputs(folder);
  WriteInputs(fresh);
  PrepareTokens(Options(fresh, "a.tok"));
  PrepareOptions options = Options(folder, "a.tok");
  std::string said;
  options.say = [&](const std::string& sentence) { said += sentence + "\n"; };
  auto stop = [&] {
    PrepareOptions stopping = options;
    int calls = 0;
    stopping.progress = [&](const PrepareProgress&) {
      if (++calls == 4) throw RuntimeError("stop");
    };
    CHECK_THROWS_AS(PrepareTokens(stopping), RuntimeError);
    said.clear();
  };
  auto finish = [&] {
    PrepareTokens(options);
    CHECK(Outputs(folder) == Outputs(fresh));
    fs::remove(folder / "a.tok");
  };
  SECTION("a changed input") {
    stop();
    const std::string text = ReadFile(folder / "in/b.txt");
    test::Overwrite(folder / "in/b.txt", "other");
    stop();
    test::Overwrite(folder / "in/b.txt", text);
    finish();
    CHECK(Contains(said, "is discarded: the input"));
    CHECK(Contains(said, "in/b.txt is another or has changed"));
  }
  SECTION("another option") {
    options.field = "id";
    options.inputs = {folder / "in/b.txt"};
    options.piece_bytes = 1;
    stop();
    options = Options(folder, "a.tok");
    options.say = [&](const std::string& sentence) { said += sentence + "\n"; };
    finish();
    CHECK(Contains(said, "is discarded: its options are others"));
  }
  SECTION("a flipped bit in the work") {
    stop();
    std::string tokens = ReadFile(folder / "a.tok.partial/tokens");
    tokens[tokens.size() / 2] ^= 1;
    test::Overwrite(folder / "a.tok.partial/tokens", tokens);
    finish();
    CHECK(Contains(said, "is damaged; going on before it"));
  }
  SECTION("a torn journal") {
    stop();
    const std::string journal = ReadFile(folder / "a.tok.partial/journal");
    test::Overwrite(folder / "a.tok.partial/journal", journal.substr(0, journal.size() - 20));
    finish();
    CHECK(Contains(said, "is damaged; going on before it"));
  }
  SECTION("files of others in the folder stay") {
    folder.Write("a.tok.partial/mine", "x");
    PrepareTokens(options);
    CHECK(ReadFile(folder / "a.tok.partial/mine") == "x");
  }
}

TEST_CASE("an output that is in the way costs no second tokenization") {
  TempFolder folder;
  WriteInputs(folder);
  folder.Write("a.tok", "something else");
  PrepareOptions options = Options(folder, "a.tok");
  CHECK(Contains(MessageOf<UsageError>([&] { PrepareTokens(options); }), "--force"));
  CHECK(ReadFile(folder / "a.tok") == "something else");
  options.force = true;
  bool tokenized = false;
  options.progress = [&](const PrepareProgress& progress) { tokenized = tokenized || !progress.writing; };
  PrepareTokens(options);
  CHECK_FALSE(tokenized);
  CHECK(Outputs(folder).size() == 1);
}

TEST_CASE("wrong input leaves nothing; the first error in the order of the inputs is the one that is told") {
  TempFolder folder;
  WriteInputs(folder);
  folder.Write("in/a.jsonl", "{\"text\": \"fine\"}\n{\"text\": 1}\n");
  folder.Write("in/c.jsonl.zst", "no zstd");
  for (int i = 0; i < 3; ++i) {
    const std::string message = MessageOf<UsageError>([&] { PrepareTokens(Options(folder, "a.tok")); });
    CHECK(Contains(message, "in/a.jsonl:2: field `text` is not a string"));
    CHECK(Outputs(folder).empty());
  }
}

TEST_CASE("a signal ends the wait for a pipe that is silent, and leaves nothing") {
  TempFolder folder;
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  const int pipe = ::open((folder / "pipe").c_str(), O_RDWR | O_CLOEXEC);  // never at its end
  REQUIRE(::write(pipe, "text", 4) == 4);
  const std::string program = std::string(DS_BIN_DIR) + "/ds-convert", output = folder / "a.tok";
  const bool tokenizer = GENERATE(false, true);
  CAPTURE(tokenizer);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(pipe, STDIN_FILENO);
    const char *const command = tokenizer ? "tokenizer" : "data", *const option = tokenizer ? "-v" : "--threads";
    ::execl(program.c_str(), "ds-convert", command, "-i", "-", "--format", "text", "-o", output.c_str(), option, "400",
            nullptr);
    ::_exit(1);
  }
  const std::string stat = "/proc/" + std::to_string(child) + "/stat";
  for (int left = 1; left > 0 || !Contains(ReadFile(stat), ") S ");) {  // until it waits for more
    REQUIRE(::ioctl(pipe, FIONREAD, &left) == 0);
    ::sched_yield();
  }
  ::kill(child, SIGTERM);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 128 + SIGTERM);
  ::close(pipe);
  CHECK(folder.Names() == std::set<std::string>{"pipe"});
}

TEST_CASE("a signal ends the wait for a silent pipe whenever it comes, also just before the wait begins") {
  TempFolder folder;
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  const int pipe = ::open((folder / "pipe").c_str(), O_RDWR | O_CLOEXEC);  // never at its end, and nothing in it
  const std::string program = std::string(DS_BIN_DIR) + "/ds-convert", output = folder / "a.tok";
  // Not fork: between that and exec the child would still have Catch's handlers, which wait for ever where the signal
  // finds the allocator locked.
  posix_spawn_file_actions_t actions;
  REQUIRE(::posix_spawn_file_actions_init(&actions) == 0);
  REQUIRE(::posix_spawn_file_actions_adddup2(&actions, pipe, STDIN_FILENO) == 0);
  std::string arguments[] = {"ds-convert", "data", "-i", "-", "--format", "text", "-o", output};
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  for (int i = 0; i < 24; ++i) {
    pid_t child = -1;
    REQUIRE(::posix_spawn(&child, program.c_str(), &actions, nullptr, argv.data(), environ) == 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(i));
    ::kill(child, SIGTERM);
    int status = 0, left = 10'000;  // milliseconds
    while (::waitpid(child, &status, WNOHANG) == 0 && --left > 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    CAPTURE(i);
    if (left == 0) ::kill(child, SIGKILL);
    CHECK(left > 0);
  }
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(pipe);
}

TEST_CASE("an output in the folder that is converted is no input of the same command") {
  TempFolder folder;
  WriteInputs(folder);
  const std::string arguments = "--input in --output in/a.tok --threads 2 --validation-fraction 0.3";
  REQUIRE(Convert(folder, arguments, "convert.rename,hit=2,kill") == 137);
  REQUIRE(fs::exists(folder / "in/a-train.tok"));
  REQUIRE(Convert(folder, arguments) == 0);
  CHECK(Contains(ReadFile(folder / "log"), "going on with an interrupted conversion"));
  REQUIRE(Convert(folder, arguments) == 0);
  CHECK(Contains(ReadFile(folder / "log"), "(unchanged)"));
  CHECK(Contains(MessageOf<UsageError>([&] { FindInputs({folder / "in"}); }), "token files and texts"));
}

TEST_CASE("inputs without text leave nothing") {
  TempFolder folder;
  folder.Write("in/empty.txt", "");
  std::vector<std::string> said;
  PrepareOptions options = Options(folder, "a.tok");
  options.say = [&](const std::string& line) { said.push_back(line); };
  CHECK(Contains(MessageOf<UsageError>([&] { PrepareTokens(options); }), "the input holds no text"));
  CHECK(said.empty());
  CHECK_FALSE(fs::exists(folder / "a.tok.partial"));
}

TEST_CASE("a seed is a whole number from 0 to 2^64-1: none is read as another") {
  TempFolder folder;
  folder.Write("in/a.txt", "a");
  for (const char* seed : {"-1", "18446744073709551616", "0x10", "010", "1.5", "''"}) {
    CAPTURE(seed);
    CHECK(Convert(folder, std::string("--input in --output a.tok --shuffle-seed=") + seed) == 2);
    CHECK(Contains(ReadFile(folder / "log"), "--shuffle-seed"));
    CHECK_FALSE(fs::exists(folder / "a.tok"));
  }
  CHECK(Convert(folder, "--input in --output a.tok --shuffle-seed 18446744073709551615") == 0);
  CHECK(Convert(folder, "--input in --output a.tok --shuffle-seed 1e3") == 0);
}

TEST_CASE("documents are shuffled by the seed alone, and each is there once") {
  TempFolder folder;
  std::string lines;
  for (int i = 0; i < 500; ++i) lines += "{\"text\": \"document " + std::to_string(i) + "\"}\n";
  folder.Write("in/a.jsonl", lines);
  auto documents = [&](std::optional<uint64_t> seed, int threads, double fraction = 0) {
    PrepareOptions options = Options(folder, "s.tok");
    options.shuffle_seed = seed;
    options.threads = threads;
    options.piece_bytes = 1000 * threads;
    options.shard_tokens = 997;
    options.validation_fraction = fraction;
    options.force = true;
    PrepareTokens(options);
    return Documents(folder / (fraction > 0 ? "s-train.tok" : "s.tok"));
  };
  const auto plain = documents(std::nullopt, 1), shuffled = documents(1, 1);
  REQUIRE(plain.size() == 500);
  CHECK(plain[7] == "document 7");
  CHECK(shuffled != plain);
  CHECK(Sorted(shuffled) == Sorted(plain));
  CHECK(documents(1, 4) == shuffled);
  CHECK(documents(2, 1) != shuffled);
  // With a split: the same order, without the documents of the other side.
  const auto train = documents(1, 2, 0.3), validation = Documents(folder / "s-validation.tok");
  CHECK(train.size() + validation.size() == 500);
  for (const auto& part : {train, validation}) {
    REQUIRE_FALSE(part.empty());
    auto at = shuffled.begin();
    for (const std::string& text : part) {
      at = std::find(at, shuffled.end(), text);
      REQUIRE(at != shuffled.end());
    }
  }
}

TEST_CASE("standard input is read as the format says, and its work is not taken up") {
  TempFolder folder;
  folder.Write("a.jsonl", "{\"meta\": {\"text\": \"one\"}}\n{\"meta\": {\"text\": \"two\"}}\n");
  REQUIRE(Convert(folder, "-i - --format jsonl --field meta.text -o a.tok < a.jsonl") == 0);
  CHECK(Documents(folder / "a.tok") == std::vector<std::string>{"one", "two"});
  REQUIRE(Convert(folder, "-i - --format text -o b.tok < a.jsonl", "convert.piece,kill") == 137);
  REQUIRE(Convert(folder, "-i - --format text -o b.tok < a.jsonl") == 0);
  CHECK(Documents(folder / "b.tok") == std::vector<std::string>{ReadFile(folder / "a.jsonl")});
  CHECK_FALSE(fs::exists(folder / "b.tok.partial"));
  REQUIRE(Convert(folder, "-i - -o c.tok < a.jsonl") == 2);
  CHECK(Contains(ReadFile(folder / "log"), "say --format text or --format jsonl"));
}

}  // namespace ds
