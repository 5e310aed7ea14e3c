#include "runtime/job/deepspeed.h"

#include <filesystem>
#include <fstream>

#include "test/catch.h"
#include "test/unit/job/spec_helpers.h"

namespace ds {
namespace {

/// A job whose deepspeed section is `section`, written at line 5.
std::string Job(const std::string& section) { return TinyJob("\ndeepspeed: " + section + "\n"); }

/// The same with a batch size that fits, and `more` keys.
JobSpec With(const std::string& more, int64_t ranks = 2) {
  return Parse(Job("{train_batch_size: 4, " + more + "}"), {}, ranks);
}
std::string Failure(const std::string& more) { return SpecFailure(Job("{train_batch_size: 4, " + more + "}")); }

TEST_CASE("batch sizes follow DeepSpeed's rule") {
  struct Case {
    const char* keys;
    int64_t ranks, train, micro, accumulation;
  };
  const Case good[] = {
      {"train_batch_size: 32, train_micro_batch_size_per_gpu: 16, gradient_accumulation_steps: 1", 2, 32, 16, 1},
      {"train_batch_size: 32, train_micro_batch_size_per_gpu: 8, gradient_accumulation_steps: 2", 2, 32, 8, 2},
      {"train_batch_size: 32, train_micro_batch_size_per_gpu: 4", 2, 32, 4, 4},
      {"train_batch_size: 32, gradient_accumulation_steps: 4", 2, 32, 4, 4},
      {"train_micro_batch_size_per_gpu: 3, gradient_accumulation_steps: 5", 4, 60, 3, 5},
      {"train_batch_size: 32", 4, 32, 8, 1},
      {"train_micro_batch_size_per_gpu: 3", 4, 12, 3, 1},
      {"train_batch_size: '3.2e1', train_micro_batch_size_per_gpu: auto, gradient_accumulation_steps: auto", 1, 32, 32,
       1},
  };
  for (const Case& c : good) {
    CAPTURE(c.keys);
    const BatchConfig batch = Parse(Job(std::string("{") + c.keys + "}"), {}, c.ranks).batch;
    CHECK(batch == BatchConfig{c.train, c.micro, c.accumulation});
  }
  struct Bad {
    const char* keys;
    const char* reason;
  };
  const Bad bad[] = {
      {"train_batch_size: 33, train_micro_batch_size_per_gpu: 17, gradient_accumulation_steps: 2",
       "micro-batch 17 x accumulation 2 x 2 data-parallel ranks = 68"},
      {"train_batch_size: 32, train_micro_batch_size_per_gpu: 18, gradient_accumulation_steps: 1", "= 36; write 36"},
      {"train_batch_size: 33", "33 / 2 is not whole; write 32 or 34"},
      {"train_batch_size: 1", "1 / 2 is not whole; write 2"},
      {"train_batch_size: 32, train_micro_batch_size_per_gpu: 5", "32 / 10 is not whole; write 30 or 40"},
      {"train_batch_size: 32, gradient_accumulation_steps: 3", "32 / 6 is not whole; write 30 or 36"},
      {"gradient_accumulation_steps: 3", "cannot be told from the accumulation alone"},
      {"", "none of the three is given"},
      {"train_batch_size: auto", "none of the three is given"},
      {"train_batch_size: 0", "too small"},
  };
  for (const Bad& c : bad) {
    const std::string failure = SpecFailure(Job(std::string("{") + c.keys + "}"));
    CAPTURE(c.keys, failure);
    CHECK(Has(failure, "deepspeed.train_batch_size: "));
    CHECK(Has(failure, c.reason));
  }
}

TEST_CASE("honoured keys") {
  const JobSpec spec = With(
      "gradient_clipping: 0.5, steps_per_print: 7, bf16: {enabled: true}, zero_optimization: {stage: 3,"
      " reduce_bucket_size: 2e8, allgather_bucket_size: '3e8', stage3_prefetch_bucket_size: 1e6,"
      " stage3_param_persistence_threshold: 10, stage3_model_persistence_threshold: 1e14, stage3_max_live_parameters: "
      "1e8,"
      " stage3_max_reuse_distance: 0}");
  CHECK(spec.gradient_clipping == 0.5);
  CHECK(spec.training.log_every == 7);
  CHECK(spec.precision == Precision::bf16);
  CHECK(spec.zero == ZeroConfig{3, 200'000'000, 300'000'000, 1'000'000, 10, 100'000'000'000'000, 100'000'000, 0});
  const JobSpec half = With(
      "fp16: {enabled: true, loss_scale: 0, initial_scale_power: 12, loss_scale_window: 50, hysteresis: 4,"
      " consecutive_hysteresis: true, min_loss_scale: 2}");
  CHECK(half.precision == Precision::fp16);
  CHECK(half.loss_scale == LossScaleConfig{0, 12, 50, 4, true, 2});
  CHECK(With("bfloat16: {enabled: true}").precision == Precision::bf16);
  CHECK(With("zero_optimization: true").zero.stage == 1);
  CHECK(With("zero_optimization: {max_live_parameters: 5}").zero.max_live_parameters == 5);
  CHECK(With("zero_optimization: {stage: auto}").zero.stage == 0);
  CHECK(HasNote(With("zero_optimization: {stage3_prefetch_bucket_size: auto}"), "auto is 5e7"));
  const JobSpec both = Parse(Job("{train_batch_size: 4, steps_per_print: 7}"), {{"training.log_every", "3"}});
  CHECK(both.training.log_every == 3);
}

TEST_CASE("keys satisfied by construction are accepted and noted, their opposite refused") {
  const JobSpec spec = With(
      "wall_clock_breakdown: true, zero_optimization: {stage: 2, contiguous_gradients: true, overlap_comm: false,"
      " reduce_scatter: true, allgather_partitions: true, sub_group_size: 1e8,"
      " stage3_gather_16bit_weights_on_model_save: true}");
  for (const char* key : {"wall_clock_breakdown", "contiguous_gradients", "overlap_comm", "reduce_scatter",
                          "allgather_partitions", "sub_group_size", "stage3_gather_16bit_weights_on_model_save"}) {
    CAPTURE(key);
    CHECK(HasNote(spec, key));
  }
  CHECK(Has(Failure("zero_optimization: {contiguous_gradients: false}"),
            "job.yaml:5:76: deepspeed.zero_optimization.contiguous_gradients: false: the opposite is always so: "));
  CHECK(Has(Failure("zero_optimization: {reduce_scatter: false}"), "or write true"));
  CHECK(Has(Failure("bf16: {check_grad_overflow: false}"), "check_grad_overflow: false"));
}

TEST_CASE("what this version cannot do is refused with the reason; its default is accepted") {
  struct Case {
    const char* refused;
    const char* accepted;
    const char* key;
  };
  const Case cases[] = {
      {"zero_optimization: {offload_optimizer: {super_offload: true}}",
       "zero_optimization: {offload_optimizer: {super_offload: false, cpuadam_cores_perc: 0.9}}",
       "super_offload: true"},
      {"aio: {use_gds: true}", "aio: {use_gds: false}", "by way of host memory"},
      {"zero_optimization: {zero_hpz_partition_size: 8}", "zero_optimization: {zero_hpz_partition_size: '1'}", "hpz"},
      {"communication_data_type: fp16", "communication_data_type: FP32", "communication_data_type: fp16"},
      {"data_types: {grad_accum_dtype: bf16}", "data_types: {grad_accum_dtype: fp32}", "grad_accum_dtype: bf16"},
      {"flops_profiler: {enabled: true, profile_step: 3}", "flops_profiler: {enabled: false, profile_step: 3}",
       "flops_profiler.enabled: true: refused"},
      {"tensorboard: {enabled: true}", "tensorboard: {}", "tensorboard"},
      {"sparse_gradients: true", "sparse_gradients: false", "sparse_gradients: true"},
      {"gradient_predivide_factor: 2", "gradient_predivide_factor: 1", "gradient_predivide_factor: 2"},
      {"zero_optimization: {zenflow: {topk_ratio: 0.1}}", "aio: {queue_depth: 32}", "zenflow: a map: refused"},
      {"amp: {enabled: true}", "amp: {enabled: false, opt_level: O1}", "amp"},
      {"sequence_parallel_size: 2", "sequence_parallel_size: 1", "not equal to parallel.sequence, which is 1"},
      {"tensor_parallel: {autotp_size: 2}", "tensor_parallel: {autotp_size: 1}",
       "not equal to parallel.tensor, which is 1"},
      {"compression_training: {weight_quantization: {shared_parameters: {enabled: true}}}",
       "compression_training: {weight_quantization: {shared_parameters: {enabled: false}, different_groups: {a: "
       "{modules: [x]}, b: {params: {start_bits: 8}}}}}",
       "compression_training"},
      {"optimizer: {type: Lamb}", "optimizer: {type: adamw}", "optimizer.type: Lamb: refused"},
      {"optimizer: {type: Adam, params: {amsgrad: true}}", "optimizer: {type: Adam, params: {amsgrad: false}}",
       "AMSGrad"},
      {"scheduler: {type: WarmupLR, params: {last_batch_iteration: 5}}",
       "scheduler: {type: WarmupLR, params: {last_batch_iteration: -1}}", "last_batch_iteration: 5"},
      {"compile: {deepcompile: true}", "compile: {deepcompile: false, double_buffer: true}", "compile"},
      {"pipeline: {activation_checkpoint_interval: 1}", "pipeline: {activation_checkpoint_interval: 0}", "pipeline."},
      {"checkpoint: {writer: {type: fast}}", "checkpoint: {writer: null, tag_validation: Fail}", "checkpoint.writer"},
  };
  for (const Case& c : cases) {
    const std::string failure = Failure(c.refused);
    CAPTURE(c.refused, failure);
    CHECK(Has(failure, c.key));
    CHECK_FALSE(Has(failure, "\n"));
    CHECK(SpecFailure(Job(std::string("{train_batch_size: 4, ") + c.accepted + "}")) == "accepted");
  }
}

TEST_CASE("unknown, duplicate and double-spelt keys") {
  CHECK(Has(Failure("zero_optimisation: {stage: 2}"),
            "job.yaml:5:34: deepspeed.zero_optimisation: unknown key; the nearest is deepspeed.zero_optimization"));
  CHECK(Has(Failure("zero_optimization: {stge: 2}"),
            "deepspeed.zero_optimization.stge: unknown key; the nearest is deepspeed.zero_optimization.stage"));
  CHECK(Has(Failure("flops_profiler: {enabled: false, profile_stp: 1}"),
            "the nearest is deepspeed.flops_profiler.profile_step"));
  CHECK(Has(Failure("optimizer: {type: Adam, params: {lrr: 1}}"),
            "deepspeed.optimizer.params.lrr: unknown key; the nearest is deepspeed.optimizer.params.lr"));
  CHECK(Has(Failure("optimizer: {typ: Adam}"), "the nearest is deepspeed.optimizer.type"));
  CHECK(Has(Failure("optimizer: {params: {lr: 1}}"), "deepspeed.optimizer.type: missing"));
  CHECK(Has(Failure("bf16: {enabled: true}, bfloat16: {enabled: true}"), "another spelling of deepspeed.bf16"));
  CHECK(Has(Failure("bf16: {enabled: true}, fp16: {enabled: true}"), "enable one of them"));
  CHECK(Has(Failure("bf16: {enabled: true}, bf16: {enabled: true}"), "duplicate key"));
  CHECK(Has(Failure("zero_optimization: [1]"), "a section is wanted"));
  CHECK(Has(Failure("zero_optimization: 2"),
            "deepspeed.zero_optimization: 2: a section is wanted; write {\"stage\": 2}"));
  CHECK(Has(Failure("fp16: {type: bfloat16}"),
            "deepspeed.fp16.type: refused: DeepSpeed 0.19 has no such key; it is GPT"));
  CHECK(Has(Failure("zero_optimization: {stage: 2.5}"), "a fraction"));
  CHECK(Has(Failure("gradient_clipping: -1"), "too small"));
  CHECK(Has(Failure("zero_optimization.stage: 3"),
            "zero_optimization.stage: unknown key; a key in a section is written"));
  CHECK(Has(Failure("'': 3"), "deepspeed.: unknown key"));
  const std::string control = Failure("\"a\\nb\\e[31m\": 3");
  CHECK(Has(control, "deepspeed.a b [31m: unknown key"));
  CHECK_FALSE(Has(control, "\n"));
  CHECK(Has(SpecFailure(Job("5")), "job.yaml:5:12: deepspeed: 5: "));
  CHECK_NOTHROW(With("_comment: x, zero_optimization: {_c: 1}, optimizer: {type: Adam, _c: 1, params: {_c: 1}}"));
}

TEST_CASE("optimizers have DeepSpeed's names and defaults") {
  const auto optimizer = [](const std::string& section) { return With("optimizer: " + section).optimizer; };
  CHECK(optimizer("{type: Adam}").kind == OptimizerKind::adamw);
  CHECK(optimizer("{type: Adam, params: {adam_w_mode: false}}").kind == OptimizerKind::adam);
  CHECK(optimizer("{type: AdamW}").weight_decay == 0);
  CHECK(optimizer("{type: AdamW, params: {torch_adam: true}}").weight_decay == 0.01);
  CHECK(optimizer("{type: AdamW, params: {torch_adam: true, weight_decay: 0}}").weight_decay == 0);
  CHECK(optimizer("{type: ADAMW, params: {lr: '3e-4', betas: [0.8, '0.9']}}").beta2 == 0.9);
  CHECK(optimizer("{type: Lion}").lr == 1e-3);
  CHECK(optimizer("{type: Lion}").beta2 == 0.999);
  CHECK(optimizer("{type: Adagrad}").lr == 1e-2);
  CHECK(optimizer("{type: Adagrad}").eps == 1e-10);
  CHECK(optimizer("{type: RMSprop}").lr == 1e-2);
  CHECK(optimizer("{type: rmsprop, params: {alpha: 0.9, momentum: 0.5}}").alpha == 0.9);
  CHECK(Has(Failure("optimizer: {type: RMSprop, params: {centered: true}}"), "keeps no mean of the gradient"));
  CHECK(Has(Failure("optimizer: {type: RMSprop, params: {eps: 0}}"), "eps: 0: "));
  CHECK(optimizer("{type: SGD, params: {momentum: 0.9}}").momentum == 0.9);
  CHECK(HasNote(With("optimizer: {type: Adam, params: {lr: auto}}"), "lr: auto is 1e-3"));
  CHECK(Has(Failure("optimizer: {type: AdamW, params: {adam_w_mode: false}}"), "adam_w_mode: false: AdamW decays"));
  CHECK(Has(Failure("optimizer: {type: SGD, params: {nesterov: true}}"), "needs momentum"));
  CHECK(Has(Failure("optimizer: {type: Adam, params: {betas: [0.9]}}"), "write two numbers"));
  CHECK(Has(Failure("optimizer: {type: Adam, params: {betas: [0.9, 1]}}"), "outside [0, 1)"));
  CHECK(Has(Failure("optimizer: {type: Adam, params: {lr: -1}}"), "too small"));
  CHECK(Has(Failure("optimizer: {type: Adem}"), "unknown optimizer"));
  CHECK(Has(Failure("optimizer: {type: SGD, params: {betas: [0, 0]}}"), "betas: unknown key"));
}

TEST_CASE("schedules have DeepSpeed's names and defaults") {
  const auto schedule = [](const std::string& section) { return With("scheduler: " + section).scheduler; };
  const SchedulerConfig warmup = schedule("{type: WarmupLR, params: {warmup_num_steps: 1}}");
  CHECK(warmup.kind == SchedulerKind::warmup_lr);
  CHECK(warmup.parameters ==
        std::map<std::string, double>{
            {"warmup_min_lr", 0}, {"warmup_max_lr", 1e-3}, {"warmup_num_steps", 1}, {"warmup_type", 0}});
  CHECK(With("optimizer: {type: Adam, params: {lr: 0.25}}, scheduler: {type: WarmupLR}")
            .scheduler.parameters.at("warmup_max_lr") == 0.25);
  CHECK(schedule("{type: WarmupLR, params: {warmup_num_steps: 0}}").parameters.at("warmup_num_steps") == 0);
  CHECK(Has(Failure("scheduler: {type: WarmupLR, params: {warmup_num_steps: -1}}"), "too small; write 0"));
  CHECK(Has(Failure("fp16: {enabled: true, initial_scale_power: 4, min_loss_scale: 17}"),
            "fp16.initial_scale_power, which is 4"));
  CHECK_NOTHROW(With("fp16: {enabled: true, initial_scale_power: 4, min_loss_scale: 16}"));
  const JobSpec decay = With(
      "optimizer: {type: Adam, params: {lr: 5e-4}}, scheduler: {type: WarmupDecayLR, params: {total_num_steps: auto,"
      " warmup_max_lr: auto, warmup_type: linear}}");
  CHECK(decay.scheduler.parameters.at("total_num_steps") == 20);
  CHECK(decay.scheduler.parameters.at("warmup_max_lr") == 5e-4);
  CHECK(decay.scheduler.parameters.at("warmup_type") == 1);
  CHECK(HasNote(decay, "warmup_max_lr: auto is 5e-04"));
  const SchedulerConfig cycle =
      schedule("{type: OneCycle, params: {cycle_min_lr: 0.1, cycle_max_lr: 0.2, cycle_first_step_size: 7}}");
  CHECK(cycle.parameters.size() == 12);
  CHECK(cycle.parameters.at("cycle_second_step_size") == 7);
  CHECK(cycle.parameters.at("cycle_momentum") == 1);
  const JobSpec sgd =
      With("optimizer: {type: SGD}, scheduler: {type: OneCycle, params: {cycle_min_lr: 0.1, cycle_max_lr: 0.2}}");
  CHECK(sgd.scheduler.parameters.at("cycle_momentum") == 0);
  CHECK(schedule("{type: WarmupCosineLR, params: {total_num_steps: 9}}").parameters.at("cos_min_ratio") == 0.0001);
  CHECK(schedule("{type: LRRangeTest}").parameters.at("lr_range_test_step_size") == 2000);
  CHECK(Has(Failure("scheduler: {type: WarmupDecayLR}"), "total_num_steps: missing"));
  CHECK(Has(Failure("scheduler: {type: OneCycle, params: {cycle_max_lr: 1}}"), "cycle_min_lr: missing"));
  CHECK(Has(Failure("scheduler: {type: Cosine}"), "write one of LRRangeTest"));
  CHECK(Has(Failure("scheduler: {type: WarmupLR, params: {warmup_type: cubic}}"), "write one of log, linear"));
  CHECK(Has(Failure("scheduler: {type: WarmupLR, params: {total_num_steps: 3}}"), "total_num_steps: unknown key"));
  CHECK(Has(Failure("scheduler: {type: WarmupLR, params: {warmup_min_lr: 1}}"), "above warmup_max_lr"));
}

TEST_CASE("the section may be a path to DeepSpeed's JSON, with HJSON's comments") {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "ds-job-test";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "ds.json") << "{ // DeepSpeed\n  \"train_batch_size\": 8,\n  # stage\n"
                                       "  \"zero_optimization\": {\"stage\": 2,},\n}\n";
  const auto parse = [&](const std::vector<Override>& overrides) {
    return ParseJobSpec(TinyJob("deepspeed: ds.json\n"), "job.yaml", folder.string(), overrides, 2);
  };
  const auto failure = [&](const std::vector<Override>& overrides) {
    try {
      parse(overrides);
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  CHECK(parse({}).zero.stage == 2);
  CHECK(parse({}).batch.train_batch_size == 8);
  const JobSpec changed = parse({{"deepspeed.zero_optimization.stage", "3"}, {"deepspeed.train_batch_size", "6"}});
  CHECK(changed.zero.stage == 3);
  CHECK(changed.batch.train_batch_size == 6);
  std::ofstream(folder / "bad.json")
      << "{\"train_batch_size\": 8,\n \"zero_optimization\": {\"stage\": 7, \"stage\": 2}}\n";
  const std::string bad = failure({{"deepspeed", "bad.json"}});
  const std::string path = (folder / "bad.json").string();
  CHECK(Has(bad, path + ":2:33: deepspeed.zero_optimization.stage: 7: too large"));
  CHECK(Has(bad, path + ":2:36: stage: duplicate key"));
  CHECK(Has(failure({{"deepspeed", "none.json"}}), "--set: deepspeed: none.json: "));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace ds
