#include "runtime/job/job_spec.h"

#include <algorithm>

#include "test/catch.h"
#include "test/unit/job/spec_helpers.h"

namespace ds {
namespace {

TEST_CASE("a small spec gets every default of the contract") {
  const JobSpec spec = Parse(TinyJob());
  CHECK(spec.name == "job");
  CHECK(spec.seed == 1234);
  CHECK(spec.model.layers == 2);
  CHECK(spec.model.kv_heads == 4);
  CHECK(spec.model.ffn == 256);
  CHECK(spec.model.vocabulary == 257);
  CHECK(spec.data.train == std::vector<std::string>{"/jobs/train.txt"});
  CHECK(spec.data.tokenizer == "bytes");
  CHECK(spec.data.sequence_length == 128);
  CHECK(spec.training.log_every == 10);
  CHECK(spec.training.validate_every == 0);
  CHECK(spec.training.validate_batches == 8);
  CHECK(spec.training.deterministic);
  CHECK_FALSE(spec.training.exact_sharding);
  CHECK_FALSE(spec.data.reset_attention);
  CHECK(spec.checkpoint.every == 0);
  CHECK(spec.checkpoint.keep == 2);
  CHECK(spec.checkpoint.on_signal);
  CHECK_FALSE(spec.memory.device_limit);
  CHECK(spec.launch.bootstrap == "auto");
  CHECK(spec.launch.grace_seconds == 30);
  CHECK(spec.launch.lease_seconds == 30);
  CHECK(spec.launch.suspect_seconds == 20);
  CHECK(spec.launch.progress_seconds == 600);
  CHECK(spec.precision == Precision::fp32);
  CHECK(spec.zero.stage == 0);
  CHECK(spec.gradient_clipping == 1.0);
  CHECK(spec.optimizer.kind == OptimizerKind::adamw);
  CHECK(spec.optimizer.lr == 1e-3);
  CHECK(spec.optimizer.weight_decay == 0);
  CHECK(spec.scheduler.kind == SchedulerKind::none);
  CHECK(spec.batch == BatchConfig{4, 2, 1});
}

TEST_CASE("presets have their published shapes, and keys override them") {
  struct Case {
    const char* name;
    int64_t layers, hidden, heads, kv_heads, ffn, vocabulary;
    bool tied, bias, qkv_bias;
  };
  const Case cases[] = {{"gpt2-124m", 12, 768, 12, 12, 3072, 50257, true, true, true},
                        {"gpt2-1.5b", 48, 1600, 25, 25, 6400, 50257, true, true, true},
                        {"llama-tiny", 2, 64, 4, 2, 192, 257, false, false, false},
                        {"llama-1b", 16, 2048, 32, 8, 8192, 128256, true, false, false},
                        {"llama-8b", 32, 4096, 32, 8, 14336, 128256, false, false, false},
                        {"qwen2.5-0.5b", 24, 896, 14, 2, 4864, 151936, true, false, true},
                        {"qwen2.5-1.5b", 28, 1536, 12, 2, 8960, 151936, true, false, true},
                        {"qwen2.5-7b", 28, 3584, 28, 4, 18944, 152064, false, false, true}};
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const ModelConfig model = Parse(TinyJob(), {{"model.preset", c.name}}).model;
    CHECK(model.layers == c.layers);
    CHECK(model.hidden == c.hidden);
    CHECK(model.heads == c.heads);
    CHECK(model.kv_heads == c.kv_heads);
    CHECK(model.ffn == c.ffn);
    CHECK(model.vocabulary == c.vocabulary);
    CHECK(model.tied_head == c.tied);
    CHECK(model.bias == c.bias);
    CHECK(model.qkv_bias == c.qkv_bias);
  }
  const ModelConfig wide =
      Parse(TinyJob(), {{"model.hidden", "96"}, {"model.heads", "6"}, {"model.bias", "false"}}).model;
  CHECK(wide.ffn == 384);
  CHECK(wide.kv_heads == 6);
  CHECK_FALSE(wide.qkv_bias);
  CHECK(Parse(TinyJob(), {{"model.preset", "qwen2.5-0.5b"}, {"model.bias", "false"}}).model.qkv_bias);
}

TEST_CASE("a model without a preset") {
  const JobSpec spec = Parse(
      "model: {layers: 3, hidden: 60, heads: 6, activation: SwiGLU, norm: RMSNorm, position: rope}\n"
      "data: {train: [a.txt, /b.txt], sequence_length: 32}\ntraining: {steps: 1}\ndeepspeed: {train_batch_size: 2}\n");
  CHECK(spec.model.ffn == 192);  // 160 rounded up
  CHECK(spec.model.max_positions == 32);
  CHECK(spec.model.vocabulary == 257);
  CHECK(spec.model.norm == Norm::rms_norm);
  CHECK(spec.data.train == std::vector<std::string>{"/jobs/a.txt", "/b.txt"});
}

TEST_CASE("numbers mean the same in YAML, in quotes and in --set") {
  for (const char* steps : {"2e3", "2000", "2000.0", "'2e3'", "\"2000\""}) {
    CAPTURE(steps);
    CHECK(Parse(TinyJob(), {{"training.steps", steps}}).training.steps == 2000);
    const std::string text = TinyJob();
    CHECK(Parse(std::string("training: {steps: ") + steps +
                "}\nmodel: {preset: gpt2-tiny}\ndata: {train: t}\ndeepspeed: {train_batch_size: 2}\n")
              .training.steps == 2000);
  }
  const JobSpec spec =
      Parse(TinyJob("memory: {device_limit: 64MiB, host_limit: 1e9}\njob: {seed: 18446744073709551615}\n"));
  CHECK(spec.memory.device_limit == 67108864);
  CHECK(spec.memory.host_limit == 1000000000);
  CHECK(spec.seed == UINT64_MAX);
}

TEST_CASE("errors name place, key, value, reason and remedy") {
  struct Case {
    const char* more;
    const char* start;
    const char* reason;
  };
  const Case cases[] = {
      {"job: {name: a/b}", "job.yaml:5:13: job.name: a/b: ", "not a folder's name"},
      {"job:\n  seed: -1", "job.yaml:6:9: job.seed: -1: ", "negative"},
      {"job:\n  sead: 1", "job.yaml:6:3: job.sead: unknown key", "the nearest is job.seed"},
      {"jobs: {}", "job.yaml:5:1: jobs: unknown key", "the nearest is job"},
      {"steps: 5", "job.yaml:5:1: steps: unknown key", "training.steps has that name"},
      {"train_batch_size: 5", "job.yaml:5:1: train_batch_size: unknown key",
       "deepspeed.train_batch_size has that name"},
      {"launch: {steps: 5}", "job.yaml:5:10: launch.steps: unknown key", "training.steps has that name"},
      {"checkpoint: 5", "job.yaml:5:13: checkpoint: 5: ", "a section is wanted"},
      {"checkpoint: {every: 1.5}", "job.yaml:5:21: checkpoint.every: 1.5: ", "a fraction"},
      {"checkpoint: {every: -2}", "job.yaml:5:21: checkpoint.every: -2: ", "too small; write -1 or more"},
      {"checkpoint: {keep: 0}", "job.yaml:5:20: checkpoint.keep: 0: ", "too small"},
      {"checkpoint: {on_signal: yes}", "job.yaml:5:25: checkpoint.on_signal: yes: ", "neither true nor false"},
      {"checkpoint: {keep: 1_0}", "job.yaml:5:20: checkpoint.keep: 1_0: ", "underscores"},
      {"checkpoint: {keep: [1]}", "job.yaml:5:20: checkpoint.keep: a list: ", "not a list"},
      {"memory: {device_limit: 64M}", "job.yaml:5:24: memory.device_limit: 64M: ", "unknown unit"},
      {"memory: {device_limit: 0}", "job.yaml:5:24: memory.device_limit: 0: ", "no memory"},
      {"memory: {offload_activations: disk}",
       "job.yaml:5:31: memory.offload_activations: disk: ", "write one of none, cpu, nvme, auto"},
      {"parallel: {tensor: 2}", "job.yaml:5:20: parallel.tensor: 2: ", "pipeline stages only"},
      {"parallel: {pipeline: 3}", "job.yaml:5:22: parallel.pipeline: 3: ", "the 2 ranks of the job; write 2"},
      {"parallel: {pipeline: 0}", "job.yaml:5:22: parallel.pipeline: 0: ", "too small"},
      {"parallel: {pipeline: 8}", "job.yaml:5:22: parallel.pipeline: 8: ", "cannot be cut from a model of 2 layers"},
      {"parallel: {pipeline: 2, schedule: interleaved, virtual_stages: 9}",
       "job.yaml:5:22: parallel.pipeline: 2: ", "the head); write fewer parallel.virtual_stages"},
      {"parallel: {sequence: 2}", "job.yaml:5:22: parallel.sequence: 2: ", "pipeline stages only"},
      {"parallel: {expert: 2}", "job.yaml:5:20: parallel.expert: 2: ", "pipeline stages only"},
      {"parallel: {virtual_stages: 2}", "job.yaml:5:28: parallel.virtual_stages: 2: ", "parallel.pipeline is 1"},
      {"parallel: {schedule: zb-h1}", "job.yaml:5:22: parallel.schedule: zb-h1: ", "parallel.pipeline is 1"},
      {"parallel: {schedule: 2f2b}", "job.yaml:5:22: parallel.schedule: 2f2b: ", "write one of gpipe, 1f1b"},
      {"parallel: {partition: uniform}", "job.yaml:5:23: parallel.partition: uniform: ", "parallel.pipeline is 1"},
      {"parallel: {partition: best}",
       "job.yaml:5:23: parallel.partition: best: ", "time, parameters, uniform or type:"},
      {"parallel: {partition: 'type:conv'}",
       "job.yaml:5:23: parallel.partition: type:conv: ", "attention, mlp and head"},
      {"parallel: {partition: 'type:('}", "job.yaml:5:23: parallel.partition: type:(: ", "no regular expression"},
      {"parallel: {pipeline: 2, virtual_stages: 2}",
       "job.yaml:5:41: parallel.virtual_stages: 2: ", "only interleaved and zb-v"},
      {"parallel: {pipeline: 2, schedule: interleaved}", "job.yaml:5:1: parallel.virtual_stages: ", "write 2 or more"},
      {"parallel: {pipeline: 2, schedule: zb-v, virtual_stages: 3}",
       "job.yaml:5:57: parallel.virtual_stages: 3: ", "zb-v has two pieces"},
      {"parallel: {pipeline: 4, schedule: zb-v}", "job.yaml:5:22: parallel.pipeline: 4: ", "write 2, or fewer"},
      {"launch: {bootstrap: k8s}", "job.yaml:5:21: launch.bootstrap: k8s: ", "write one of auto"},
      {"launch: {min_nodes: 0}", "job.yaml:5:21: launch.min_nodes: 0: ", "too small"},
      {"launch: {restarts: {workers: 2}}", "job.yaml:5:30: launch.restarts: 2: ", "worker, node or no_progress"},
      {"launch: {restarts: [2]}", "job.yaml:5:20: launch.restarts: a list: ", "{worker: N, node: N, no_progress: N}"},
      {"launch: {restarts: {node: -1}}", "job.yaml:5:27: launch.restarts: -1: ", "0 or more"},
      {"launch: {restarts: {node: 1}}", "job.yaml:5:20: launch.restarts: a map: ", "launch.min_nodes"},
      {"launch: {env: [A]}", "job.yaml:5:15: launch.env: a list: ", "NAME: VALUE"},
      {"launch: {env: {A: [1]}}", "job.yaml:5:19: launch.env: a list: ", "a text"},
      {"launch: {env: {'A=B': 1}}", "job.yaml:5:23: launch.env: 1: ", "has '='"},
      {"launch: {lease_seconds: 0}", "job.yaml:5:25: launch.lease_seconds: 0: ",
       "too small: agents and ds-launch speak once a second, so that every node would be lost; write 2 or more"},
      {"launch: {join_seconds: 0.5}", "job.yaml:5:24: launch.join_seconds: 0.5: ", "none would join; write 1 or more"},
      {"launch: {grace_seconds: .nan}", "job.yaml:5:25: launch.grace_seconds: .nan: ", ""},
      {"launch: {grace_seconds: 0.01}", "job.yaml:5:25: launch.grace_seconds: 0.01: ", "write 0.1 or more"},
      {"launch: {suspect_seconds: 0.5}", "job.yaml:5:27: launch.suspect_seconds: 0.5: ", "write 1 or more"},
      {"launch: {lease_seconds: 10, suspect_seconds: 20}", "job.yaml:5:46: launch.suspect_seconds: 20: ",
       "more than launch.lease_seconds, after which a node is lost; write at most that"},
      {"launch: {suspect_seconds: 40}", "job.yaml:5:27: launch.suspect_seconds: 40: ", "launch.lease_seconds"},
      {"launch: {progress_seconds: -1}", "job.yaml:5:28: launch.progress_seconds: -1: ", "too small"},
      {"job: {name: x}\njob: {seed: 1}", "job.yaml:6:1: job: duplicate key; the first is at job.yaml:5:1",
       "remove one"},
  };
  for (const Case& c : cases) {
    const std::string failure = SpecFailure(TinyJob(std::string(c.more) + "\n"));
    CAPTURE(c.more, failure);
    CHECK(failure.find(c.start) == 0);
    CHECK(Has(failure, c.reason));
    CHECK_FALSE(Has(failure, "\n"));
  }
}

TEST_CASE("errors of model, data and training") {
  struct Case {
    const char* key;
    const char* value;
    const char* start;
    const char* reason;
  };
  const Case cases[] = {
      {"model.preset", "gpt2", "--set: model.preset: gpt2: ", "unknown preset"},
      {"model.position", "alibi", "--set: model.position: alibi: ", "no ALiBi"},
      {"model.heads", "5", "--set: model.heads: 5: ", "is no multiple of 5; write a divisor of it"},
      {"model.kv_heads", "3", "--set: model.kv_heads: 3: ", "write a divisor"},
      {"model.dropout", "1", "--set: model.dropout: 1: ", "outside [0, 1)"},
      {"model.dropout", "-0.1", "--set: model.dropout: -0.1: ", "outside [0, 1)"},
      {"model.layers", "0", "--set: model.layers: 0: ", "too small"},
      {"model.vocabulary", "256", "--set: model.vocabulary: 256: ", "write 257 or more"},
      {"model.norm", "batch", "--set: model.norm: batch: ", "write one of layer_norm, rms_norm"},
      {"model.norm_eps", "0", "--set: model.norm_eps: 0: ", "not positive"},
      {"model.rotary", "1", "--set: model.rotary: unknown key", "the nearest is model."},
      {"data.sequence_length", "129",
       "--set: data.sequence_length: 129: ", "more than model.max_positions, which is 128"},
      {"data.tokenizer", "tok.json", "--set: data.tokenizer: tok.json: ", "there is no tokenizer file /jobs/tok.json"},
      {"data.tokenizer_id", "sp-12", "--set: data.tokenizer_id: sp-12: ", "no tokenizer's id"},
      {"data.tokenizer_id", "sp-0123456789abcdef",
       "--set: data.tokenizer_id: sp-0123456789abcdef: ", "data.tokenizer is bytes"},
      {"data.train", "['']", "--set data.train:1:2: data.train: \"\": ", "an empty path"},
      {"training.steps", "abc", "--set: training.steps: abc: ", "not a number"},
      {"training.steps", "0", "--set: training.steps: 0: ", "write 1 or more"},
      {"training.steps", "1e30", "--set: training.steps: 1e30: ", "beyond 64 bits"},
      {"training.recompute", "some",
       "--set: training.recompute: some: ", "write one of none, activation, attention, full"},
      {"training.validate_every", "5", "--set: training.validate_every: 5: ", "no validation data"},
      {"training.profile_steps", "[3, 0]",
       "--set training.profile_steps:1:5: training.profile_steps: 0: ", "write 1 or more"},
      {"training.profile_steps", "[3, 21]",
       "--set: training.profile_steps: ", "there is no step 21 to trace: training.steps is 20"},
      {"training.on_nan", "go", "--set: training.on_nan: go: ", "write one of stop, skip"},
      {"training.steps.x", "1", "--set: training.steps.x: training.steps is 20, not a section", "as a whole"},
      {"training..steps", "1", "--set: training..steps: an empty part", "write"},
      {"", "1", "--set: : an empty part", "write"},
      {"training.steps", "\"x", "--set training.steps:1:", "not YAML"},
  };
  for (const Case& c : cases) {
    const std::string failure = SpecFailure(TinyJob(), {{c.key, c.value}});
    CAPTURE(c.key, c.value, failure);
    CHECK(failure.find(c.start) == 0);
    CHECK(Has(failure, c.reason));
  }
  CHECK(Has(SpecFailure(TinyJob(), {{"model.position", "rope"}, {"model.hidden", "36"}}), "is odd"));
  CHECK(Parse(TinyJob(), {{"model.position", "rope"}, {"data.sequence_length", "256"}}).data.sequence_length == 256);
}

TEST_CASE("training.fp8 is off, and taken with bf16 alone") {
  CHECK_FALSE(Parse(TinyJob()).training.fp8);
  const std::string bf16 = TinyJob("deepspeed: {train_batch_size: 4, bf16: {enabled: true}}\n");
  CHECK(Parse(bf16, {{"training.fp8", "true"}}).training.fp8);
  CHECK_FALSE(Parse(bf16).training.fp8);
  CHECK_FALSE(HasNote(Parse(bf16, {{"training.fp8", "true"}}), "training.fp8"));
  const std::string note = "training.fp8: multiplied in bf16, since 8 bits want multiples of 16: ";
  CHECK(HasNote(Parse(bf16, {{"training.fp8", "true"}, {"model.ffn", "250"}}),
                note + "up (64 to 250), down (250 to 64) of 256 rows"));
  CHECK(HasNote(Parse(bf16, {{"training.fp8", "true"}, {"data.sequence_length", "33"}}),
                note + "qkv (64 to 192), proj (64 to 64), up (64 to 256), down (256 to 64) of 66 rows"));
  CHECK_FALSE(HasNote(Parse(bf16, {{"data.sequence_length", "33"}}), "training.fp8"));
  CHECK(Has(SpecFailure(TinyJob(), {{"training.fp8", "true"}}),
            "training.fp8: true: 8-bit products are of bf16 tensors, and this job computes in fp32; write "
            "deepspeed.bf16.enabled: true, or training.fp8: false"));
  CHECK(
      Has(SpecFailure(TinyJob("deepspeed: {train_batch_size: 4, fp16: {enabled: true}}\n"), {{"training.fp8", "true"}}),
          "this job computes in fp16"));
  CHECK(Parse(TinyJob("deepspeed: {train_batch_size: 4, fp16: {enabled: true}}\n"), {{"training.fp8", "false"}})
            .training.deterministic);
}

TEST_CASE("missing keys are named, all at once") {
  const std::string failure = SpecFailure("training: {}\n");
  CHECK(Has(failure, "job.yaml: model.layers: missing"));
  CHECK(Has(failure, "\njob.yaml: model.hidden: missing"));
  CHECK(Has(failure, "\njob.yaml: model.heads: missing"));
  CHECK(Has(failure, "\njob.yaml: data.train: missing"));
  CHECK(Has(failure, "\njob.yaml:1:1: training.steps: missing"));
  CHECK(Has(failure, "deepspeed.train_batch_size"));
  CHECK(Has(SpecFailure(""), "model.layers: missing"));
  CHECK(Has(SpecFailure("- a\n"), "job.yaml:1:1: sections are wanted"));
  CHECK(SpecFailure("a: [\n").find("job.yaml:") == 0);
}

TEST_CASE("errors of several kinds are told together") {
  const std::string failure = SpecFailure(
      "model: {preset: gpt2-tiny, hiden: 3}\ndata: {train: t}\ntraining: {steps: 1.5}\n"
      "deepspeed: {train_batch_size: 3, zero_optimization: {stage: 4}}\njob: {seed: 1, seed: 2}\n");
  for (const char* line : {"job.yaml:5:16: seed: duplicate key", "job.yaml:1:28: model.hiden: unknown key",
                           "job.yaml:3:19: training.steps: 1.5: a fraction",
                           "job.yaml:4:61: deepspeed.zero_optimization.stage: 4: too large",
                           "job.yaml:4:31: deepspeed.train_batch_size: 3: not micro-batch ? x accumulation 1 x 2"}) {
    CAPTURE(line, failure);
    CHECK(Has(failure, line));
  }
}

TEST_CASE("comments, nulls and sections without keys change nothing") {
  const JobSpec plain = Parse(TinyJob());
  CHECK(Parse(TinyJob("_note: {anything: [1, 2]}\njob:\nlaunch: {_why: x, restarts: ~}\ncheckpoint: {}\n")) == plain);
  CHECK(Parse(TinyJob("launch: {env: {_A: x}}\n")).launch.env.size() == 1);
}

TEST_CASE("--set: later wins, sections are made, values are YAML") {
  CHECK(Parse(TinyJob(), {{"training.steps", "5"}, {"training.steps", "6"}}).training.steps == 6);
  CHECK(Parse(TinyJob(), {{"checkpoint.every", "7"}}).checkpoint.every == 7);
  CHECK(Parse(TinyJob(), {{"model", "{preset: llama-tiny, layers: 5}"}}).model.layers == 5);
  CHECK(Parse(TinyJob(), {{"deepspeed.zero_optimization.stage", "3"}}).zero.stage == 3);
  CHECK(Parse(TinyJob(), {{"training.log_every", ""}}).training.log_every == 10);  // null: as good as absent
  const JobSpec spec = Parse(TinyJob(), {{"launch.env.A.B", "x y"}, {"launch.env.C", "'1'"}});
  REQUIRE(spec.launch.env.size() == 2);
  CHECK(spec.launch.env[0] == std::pair<std::string, std::string>("A.B", "x y"));
  CHECK(spec.launch.env[1].second == "1");
  // An override mends an error of the file: it is applied before anything is checked.
  CHECK(Parse("model: {preset: gpt2-tiny}\ndata: {train: t}\ntraining: {steps: x}\ndeepspeed: {train_batch_size: 2}\n",
              {{"training.steps", "3"}})
            .training.steps == 3);
}

TEST_CASE("training.recompute: activation is taken with every activation, and noted where it changes nothing") {
  for (const char* activation : {"gelu", "gelu_tanh", "swiglu"})
    for (const char* mode : {"none", "activation", "attention", "full"}) {
      CAPTURE(activation, mode);
      const JobSpec spec = Parse(TinyJob(), {{"model.activation", activation}, {"training.recompute", mode}});
      int notes = 0;
      for (const std::string& note : spec.notes) notes += note.starts_with("training.recompute: ");
      const bool nothing = std::string(mode) == "activation" && std::string(activation) != "swiglu";
      CHECK(notes == nothing);
      CHECK(HasNote(spec, std::string("activation is as none with model.activation ") + activation + ": ") == nothing);
      CHECK((spec.training.recompute == RecomputeMode::activation) == (std::string(mode) == "activation"));
    }
}

TEST_CASE("the resolved spec reads back to an equal spec") {
  const char* const cases[] = {
      "",
      "deepspeed: {train_batch_size: 12, train_micro_batch_size_per_gpu: 3, bf16: {enabled: true}}\n",
      "deepspeed: {train_micro_batch_size_per_gpu: 1, fp16: {enabled: true, loss_scale: 128, hysteresis: 3,"
      " consecutive_hysteresis: true, min_loss_scale: 0.5}, zero_optimization: {stage: 3, reduce_bucket_size: 1000,"
      " stage3_prefetch_bucket_size: 0}, gradient_clipping: 0.30000000000000004}\n",
      "deepspeed: {train_batch_size: 2, optimizer: {type: Adam, params: {adam_w_mode: false, lr: 3.3e-4,"
      " betas: [0.8, 0.95], eps: 1e-6, weight_decay: 0.1, bias_correction: false}},"
      " scheduler: {type: WarmupDecayLR, params: {total_num_steps: 100, warmup_type: linear}}}\n",
      "deepspeed: {train_batch_size: 2, optimizer: {type: SGD, params: {momentum: 0.9, nesterov: true}},"
      " scheduler: {type: OneCycle, params: {cycle_min_lr: 0.1, cycle_max_lr: 0.2}}}\n",
      "deepspeed: {train_batch_size: 2, optimizer: {type: Lion}, scheduler: {type: LRRangeTest}}\n",
      "deepspeed: {train_batch_size: 2, optimizer: {type: RMSprop, params: {alpha: 0.9, momentum: 0.5}}}\n",
      "deepspeed: {train_batch_size: 2, optimizer: {type: Adagrad}, scheduler: {type: WarmupCosineLR,"
      " params: {total_num_steps: auto}}}\n",
      "job: {name: 'a: b \"c\"', seed: 18446744073709551615}\nmemory: {host_limit: 1GiB}\n"
      "launch: {restarts: 2, min_nodes: 3, env: {A: \"x\\ny\", B.c: '5', '_d': ''}, grace_seconds: 0.5, "
      "progress_seconds: 0, contain: namespace, skip_checks: [shm, clock]}\n"
      "checkpoint: {every: -1, keep: 5, on_signal: false}\n",
      "launch: {min_nodes: 1, restarts: {worker: 2, node: 1}}\n",
      "launch: {restarts: {no_progress: 3, _why: hangs}}\n",
      "memory: {offload_activations: nvme, nvme_path: [/a, 'b: c']}\n",
      "deepspeed: {train_batch_size: 2, zero_optimization: {stage: 3, offload_optimizer: {device: nvme, nvme_path: /a,"
      " ratio: 0.30000000000000004}, offload_param: {device: cpu}}, aio: {block_size: 8192, queue_depth: 3},"
      " activation_checkpointing: {cpu_checkpointing: true}}\n",
  };
  const char* const modes[] = {"none", "activation", "attention", "full"};
  int mode = 0;
  for (const char* more : cases) {
    for (const char* preset : {"gpt2-tiny", "llama-tiny", "qwen2.5-0.5b"}) {
      const std::string recompute = modes[mode++ % 4];
      CAPTURE(more, preset, recompute);
      const JobSpec spec = Parse(TinyJob(more), {{"model.preset", preset},
                                                 {"data.train", "[a.txt, 'b c.txt']"},
                                                 {"data.validation", "v.jsonl"},
                                                 {"data.reset_attention", "true"},
                                                 {"training.validate_every", "3"},
                                                 {"training.recompute", recompute},
                                                 {"training.on_nan", "skip"},
                                                 {"training.profile_steps", "[2, 7]"},
                                                 {"model.dropout", "0.1"}});
      const std::string yaml = ToYaml(spec);
      CAPTURE(yaml);
      CHECK(spec.data.reset_attention);
      CHECK(yaml.find("  reset_attention: true\n") != std::string::npos);
      CHECK(yaml.find("  recompute: " + recompute + "\n") != std::string::npos);
      const JobSpec back = ParseJobSpec(yaml, "other.yaml", "/elsewhere", {}, 2);
      CHECK(back == spec);
      CHECK(ToYaml(back) == yaml);
    }
  }
}

TEST_CASE("equality sees a difference anywhere") {
  const JobSpec spec = Parse(TinyJob());
  for (const auto& [key, value] :
       std::vector<std::pair<std::string, std::string>>{{"job.seed", "1"},
                                                        {"model.layers", "3"},
                                                        {"data.train", "u"},
                                                        {"training.steps", "21"},
                                                        {"checkpoint.keep", "3"},
                                                        {"memory.host_limit", "1GB"},
                                                        {"launch.env.A", "1"},
                                                        {"deepspeed.zero_optimization.stage", "1"},
                                                        {"deepspeed.gradient_clipping", "0"},
                                                        {"deepspeed.optimizer", "{type: SGD}"}}) {
    CAPTURE(key);
    CHECK_FALSE(Parse(TinyJob(), {{key, value}}) == spec);
  }
}

TEST_CASE("a job file that does not exist is the user's error") {
  CHECK_THROWS_AS(LoadJobSpec("/nonexistent/job.yaml", {}, 1), UsageError);
}

TEST_CASE("--set: a key of very many parts is refused, not nested") {
  std::string key = "a";
  for (int i = 0; i < 60'000; ++i) key += ".a";
  CHECK(Has(SpecFailure(TinyJob(), {{key, "1"}}), "sections within more than 100 sections"));
}

TEST_CASE("the first hundred problems are told, each on a line of its own") {
  std::string many = "\"a\\nb\": 1\n";
  for (int i = 0; i < 3000; ++i) many += "k" + std::to_string(i) + ": 1\n";
  const std::string message = SpecFailure(TinyJob(many));
  CHECK(Has(message, ": a b: unknown key"));
  CHECK(std::count(message.begin(), message.end(), '\n') == 100);
  CHECK(Has(message, "\njob.yaml: these are the first 100 problems; mend them and try again"));
}

}  // namespace
}  // namespace ds
