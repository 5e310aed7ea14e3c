// Promise: a tokenizer that is trained here goes all the way: texts to token files, a job, a checkpoint, text again;
// also when its file has gone from where the job had it.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "test/catch.h"
#include "test/fault/launched_job.h"

namespace ds::test {
namespace {

namespace fs = std::filesystem;

std::string Read(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

/// A folder with a text, in which programs are run by the shell.
class Workplace {
 public:
  Workplace() { fs::copy_file(fs::path(DS_SOURCE_DIR) / "LICENSE", path("text.txt")); }
  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }
  void Write(const std::string& name, const std::string& text) const { std::ofstream(path(name)) << text; }

  /// Exit code of `build/bin/PROGRAM ARGUMENTS` run here, standard input from nowhere; output() has both streams.
  int Run(const std::string& command) {
    const std::string line = "cd " + folder_.path() + " && " DS_BIN_DIR "/" + command + " > out 2> err < /dev/null";
    const int status = std::system(line.c_str());
    INFO(command << "\n" << output());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string out() const { return Read(path("out")); }
  std::string output() const { return out() + Read(path("err")); }
  void MustRun(const std::string& command) {
    const int code = Run(command);
    INFO(command << "\n" << output());
    REQUIRE(code == 0);
  }

 private:
  TemporaryFolder folder_;
};

const char kJob[] =
    "job: {name: words}\n"
    "model: {layers: 2, hidden: 64, heads: 4, kv_heads: 2, position: rope, norm: rms_norm, activation: swiglu,\n"
    "        bias: false, tied_head: false, max_positions: 32}\n"
    "data: {train: TRAIN, tokenizer: words.model}\n"
    "training: {steps: 3}\n"
    "deepspeed: {train_batch_size: 8, optimizer: {type: AdamW, params: {lr: 1e-2}}}\n";

std::string JobOn(const std::string& train) {
  std::string job = kJob;
  return job.replace(job.find("TRAIN"), 5, train);
}

}  // namespace

TEST_CASE("text to tokenizer to tokens to a job to text") {
  Workplace here;
  here.MustRun("ds-convert tokenizer --input text.txt --vocabulary 600 --output words.model");
  here.MustRun("ds-convert data --input text.txt --tokenizer words.model --output words.tok");
  here.Write("job.yaml", JobOn("words.tok"));
  here.Write("text.yaml", JobOn("text.txt"));
  here.MustRun("ds-launch job.yaml --num-gpus 2");
  const std::string run = fs::canonical(here.path("runs/words/latest")).string();
  CHECK(Read(run + "/tokenizer.model") == Read(here.path("words.model")));
  CHECK(Read(run + "/job.yaml").find("tokenizer_id: sp-") != std::string::npos);
  CHECK(Read(run + "/job.yaml").find("vocabulary: 600") != std::string::npos);

  // Workers tokenize a text as ds-convert did: gRPC's Protocol Buffers and SentencePiece's in one process.
  here.MustRun("ds-launch text.yaml --num-gpus 2 --output text");
  auto loss = [&](const std::string& summary) {
    const std::string text = Read(here.path(summary));
    return text.substr(text.find("final_loss"), 40);
  };
  CHECK(loss("runs/words/latest/summary.json") == loss("text/words/latest/summary.json"));

  const std::string generate = "ds-generate --checkpoint " + run + " --prompt 'The License' --tokens 60 ";
  here.MustRun(generate + "--greedy");
  const std::string text = here.out();
  CHECK(text.starts_with("The License"));
  here.MustRun(generate + "--greedy --no-cache --threads 1");  // 60 tokens: beyond the context of 32
  CHECK(here.out() == text);
  fs::rename(here.path("words.model"), here.path("moved.model"));
  here.MustRun(generate + "--greedy");
  CHECK(here.out() == text);
  fs::remove(run + "/tokenizer.model");
  CHECK(here.Run(generate + "--greedy") == 2);
  CHECK(here.output().find("--tokenizer") != std::string::npos);
  here.MustRun(generate + "--greedy --tokenizer moved.model");
  CHECK(here.out() == text);
  CHECK(here.Run(generate + "--tokenizer " DS_SOURCE_DIR "/test/data/tokenizers/own.model") == 2);
  CHECK(here.output().find("was trained with sp-") != std::string::npos);

  CHECK(here.Run("ds-launch job.yaml --num-gpus 2 --dry-run") == 2);
  CHECK(here.output().find("there is no tokenizer file") != std::string::npos);
  fs::copy_file(DS_SOURCE_DIR "/test/data/tokenizers/own.model", here.path("words.model"));
  CHECK(here.Run("ds-launch job.yaml --num-gpus 2") == 2);  // 400 tokens would fit; the token file is another's
  CHECK(here.output().find("was made with the tokenizer `sp-") != std::string::npos);
}

TEST_CASE("what fills the vocabulary up is never generated; prompts from files, several samples") {
  Workplace here;
  here.Write("job.yaml",
             "job: {name: wide}\nmodel: {preset: gpt2-tiny, vocabulary: 1000}\n"
             "data: {train: text.txt, sequence_length: 32}\ntraining: {steps: 1}\n"
             "deepspeed: {train_batch_size: 2}\n");
  here.MustRun("ds-launch job.yaml --num-gpus 1");
  here.Write("prompt", "ab");
  here.MustRun("ds-generate -c runs/wide/latest --prompt-file prompt -n 200 --temperature 100 --seed 4 --timing");
  // Tokens are bytes here, so each shows as one; three quarters of the vocabulary would show as none.
  const size_t told = std::stoul(here.output().substr(here.output().find(" tokenizer bytes\n") + 17));
  CHECK(told >= 10);
  CHECK(here.out().size() == 2 + told + 1);
  const std::string text = here.out();
  here.MustRun("ds-generate -c runs/wide/latest --prompt ab -n 200 --temperature 100 --seed 3 --samples 2");
  CHECK(here.out().starts_with("--- sample 1 of 2, seed 3\nab"));
  CHECK(here.out().ends_with("--- sample 2 of 2, seed 4\n" + text));
  CHECK(here.Run("ds-generate -c runs/wide/latest --prompt a --prompt-file prompt") == 2);
  CHECK(here.Run("ds-generate -c runs/wide/latest --prompt-file absent") == 2);
  CHECK(here.Run("ds-generate -c runs/wide/latest --samples 0") == 2);
}

}  // namespace ds::test
