#!/usr/bin/env python3
"""Lists the keys of a DeepSpeed configuration, with type and default, from DeepSpeed's own source: keys.tsv beside this.

    git clone --depth 1 https://github.com/deepspeedai/DeepSpeed
    test/data/deepspeed/gather_keys.py DeepSpeed > test/data/deepspeed/keys.tsv

Made from version 0.19.6. Only names, types and defaults are taken, read from the source as a syntax tree (nothing of
DeepSpeed is imported or run):

  - sections that are pydantic classes: the class's fields, a field's alias where it has one;
  - sections that are read from a dictionary: pairs of constants KEY, KEY_DEFAULT;
  - parameters of optimizers and schedules: the signature of the class that takes them;
  - what only docs/_pages/config-json.md knows (DOCUMENTED below): names inside free-form sections, with its defaults.

A line: path, type, default as JSON ("-": it has none and must be written), file it comes from. In a path `*` is a name
that users choose, `[]` an item of a list, NAME[TYPE].params.KEY a parameter of that optimizer or schedule.
The script ends with an error where a name that the documentation explains (bold, with a type) is in no row.
"""

import ast
import json
import os
import re
import sys

ROOT = sys.argv[1]
ROWS = []

# section, file, class
CLASSES = [
    ("bf16", "runtime/precision_config.py", "DeepSpeedBF16Config"),
    ("fp16", "runtime/precision_config.py", "DeepSpeedFP16Config"),
    ("zero_optimization", "runtime/zero/config.py", "DeepSpeedZeroConfig"),
    ("zero_optimization.offload_param", "runtime/zero/offload_config.py", "DeepSpeedZeroOffloadParamConfig"),
    ("zero_optimization.offload_optimizer", "runtime/zero/offload_config.py", "DeepSpeedZeroOffloadOptimizerConfig"),
    ("zero_optimization.zenflow", "runtime/zenflow/zenflow_config.py", "ZenFlowConfig"),
    ("zero_optimization.leaf_module", "runtime/zero/leaf_module_config.py", "DeepSpeedZeroLeafModuleConfig"),
    ("tensor_parallel", "runtime/tensor_parallel/config.py", "TPTrainingConfig"),
    ("tensor_parallel.tensor_parallel", "runtime/tensor_parallel/config.py", "TPConfig"),
    ("expert_parallel", "module_inject/auto_ep_presets/base.py", "AutoEPConfig"),
    ("compile", "compile/config.py", "CompileConfig"),
    ("hybrid_engine", "runtime/config.py", "HybridEngineConfig"),
    ("comms_logger", "comm/config.py", "CommsLoggerConfig"),
    ("tensorboard", "monitor/config.py", "TensorBoardConfig"),
    ("wandb", "monitor/config.py", "WandbConfig"),
    ("csv_monitor", "monitor/config.py", "CSVConfig"),
    ("comet", "monitor/config.py", "CometConfig"),
    ("weight_quantization", "inference/config.py", "WeightQuantConfig"),
    ("timers.throughput", "utils/config.py", "DeepSpeedThroughputTimerConfig"),
]

# section, file of constants, "CONSTANT:type" pairs; the default is CONSTANT_DEFAULT, or null where there is none
DICTIONARIES = [
    ("", "runtime/constants.py", """TRAIN_BATCH_SIZE:integer TRAIN_MICRO_BATCH_SIZE_PER_GPU:integer
        GRADIENT_ACCUMULATION_STEPS:integer MANAGED_GRADIENT_ACCUMULATION:boolean STEPS_PER_PRINT:integer
        DUMP_STATE:boolean WALL_CLOCK_BREAKDOWN:boolean MEMORY_BREAKDOWN:boolean DATALOADER_DROP_LAST:boolean
        GRADIENT_CLIPPING:number PRESCALE_GRADIENTS:boolean GRADIENT_PREDIVIDE_FACTOR:number GRADIENT_ALLREDUCE_OP:text
        COMMUNICATION_DATA_TYPE:text SEQ_PARALLEL_COMMUNICATION_DATA_TYPE:text SPARSE_GRADIENTS:boolean
        DISABLE_ALLGATHER:boolean GRAPH_HARVESTING:boolean ZERO_ALLOW_UNTESTED_OPTIMIZER:boolean
        ZERO_FORCE_DS_CPU_OPTIMIZER:boolean USE_DATA_BEFORE_EXPERT_PARALLEL:boolean VOCABULARY_SIZE:integer
        LOG_LEVEL:text"""),
    ("data_types", "runtime/constants.py", "GRAD_ACCUM_DTYPE:text PARAM_DTYPE:text BUFFER_DTYPE:text"),
    ("amp", "runtime/constants.py", "AMP_ENABLED:boolean"),
    ("torch_autocast", "runtime/constants.py", """TORCH_AUTOCAST_ENABLED:boolean TORCH_AUTOCAST_DTYPE:text
        TORCH_AUTOCAST_LOWER_PRECISION_SAFE_MODULES:list"""),
    ("checkpoint", "runtime/model_checkpointing/constants.py",
     "CHECKPOINT_TAG_VALIDATION:text CHECKPOINT_SERIALIZATION:boolean"),
    ("checkpoint", "runtime/constants.py", "LOAD_UNIVERSAL_CHECKPOINT:boolean USE_NODE_LOCAL_STORAGE_CHECKPOINT:boolean"),
    ("checkpoint.parallel_write", "runtime/constants.py", "CHECKPOINT_PARALLEL_WRITE_PIPELINE_STAGE:boolean"),
    ("checkpoint.writer", "runtime/model_checkpointing/constants.py", """CHECKPOINT_WRITER_TYPE:text
        CHECKPOINT_IO_BUFFER_SIZE:integer CHECKPOINT_IO_BUFFER_DOUBLE:boolean CHECKPOINT_IO_STATISTICS:boolean
        CHECKPOINT_DATA_PARALLEL:text CHECKPOINT_WRITER_DECOUPLED:boolean CHECKPOINT_IO_MULTIPLIER:integer"""),
    ("activation_checkpointing", "runtime/activation_checkpointing/config.py",
     """ACT_CHKPT_PARTITION_ACTIVATIONS:boolean ACT_CHKPT_CPU_CHECKPOINTING:boolean
        ACT_CHKPT_CONTIGUOUS_MEMORY_OPTIMIZATION:boolean ACT_CHKPT_NUMBER_CHECKPOINTS:integer
        ACT_CHKPT_SYNCHRONIZE_CHECKPOINT_BOUNDARY:boolean ACT_CHKPT_PROFILE:boolean"""),
    ("aio", "runtime/swap_tensor/constants.py", """AIO_BLOCK_SIZE:integer AIO_QUEUE_DEPTH:integer
        AIO_INTRA_OP_PARALLELISM:integer AIO_SINGLE_SUBMIT:boolean AIO_OVERLAP_EVENTS:boolean AIO_USE_GDS:boolean"""),
    ("flops_profiler", "profiling/constants.py", """FLOPS_PROFILER_ENABLED:boolean
        FLOPS_PROFILER_RECOMPUTE_FWD_FACTOR:number FLOPS_PROFILER_PROFILE_STEP:integer
        FLOPS_PROFILER_MODULE_DEPTH:integer FLOPS_PROFILER_TOP_MODULES:integer FLOPS_PROFILER_DETAILED:boolean
        FLOPS_PROFILER_OUTPUT_FILE:text"""),
    ("autotuning", "autotuning/constants.py", """AUTOTUNING_ENABLED:boolean AUTOTUNING_FAST:boolean
        AUTOTUNING_RESULTS_DIR:text AUTOTUNING_EXPS_DIR:text AUTOTUNING_OVERWRITE:boolean AUTOTUNING_METRIC:text
        AUTOTUNING_METRIC_PATH:text AUTOTUNING_START_PROFILE_STEP:integer AUTOTUNING_END_PROFILE_STEP:integer
        AUTOTUNING_TUNER_TYPE:text AUTOTUNING_TUNER_EARLY_STOPPING:integer AUTOTUNING_TUNER_NUM_TRIALS:integer
        AUTOTUNING_ARG_MAPPINGS:map AUTOTUNING_MAX_TRAIN_BATCH_SIZE:integer AUTOTUNING_MIN_TRAIN_BATCH_SIZE:integer
        AUTOTUNING_MAX_TRAIN_MICRO_BATCH_SIZE_PER_GPU:integer AUTOTUNING_MIN_TRAIN_MICRO_BATCH_SIZE_PER_GPU:integer
        AUTOTUNING_NUM_TUNING_MICRO_BATCH_SIZES:integer AUTOTUNING_MP_SIZE:integer
        AUTOTUNING_MODEL_INFO_PATH:text"""),
    ("autotuning.model_info", "autotuning/constants.py", """MODEL_INFO_PROFILE:boolean MODEL_INFO_NUM_PARAMS:integer
        MODEL_INFO_HIDDEN_SIZE:integer MODEL_INFO_NUM_LAYERS:integer"""),
    ("elasticity", "elasticity/constants.py", """ENABLED:boolean MAX_ACCEPTABLE_BATCH_SIZE:integer MICRO_BATCHES:list
        MIN_GPUS:integer MAX_GPUS:integer MIN_TIME:integer VERSION:number PREFER_LARGER_BATCH:boolean
        IGNORE_NON_ELASTIC_BATCH_INFO:boolean NUM_GPUS_PER_NODE:integer MODEL_PARALLEL_SIZE:integer"""),
    ("progressive_layer_drop", "runtime/constants.py", "PLD_ENABLED:boolean PLD_THETA:number PLD_GAMMA:number"),
    ("eigenvalue", "runtime/constants.py", """EIGENVALUE_ENABLED:boolean EIGENVALUE_VERBOSE:boolean
        EIGENVALUE_MAX_ITER:integer EIGENVALUE_TOL:number EIGENVALUE_STABILITY:number
        EIGENVALUE_GAS_BOUNDARY_RESOLUTION:integer EIGENVALUE_LAYER_NAME:text EIGENVALUE_LAYER_NUM:integer"""),
    ("sparse_attention", "runtime/constants.py", """SPARSE_MODE:text SPARSE_BLOCK:integer
        SPARSE_DIFFERENT_LAYOUT_PER_HEAD:boolean SPARSE_NUM_LOCAL_BLOCKS:integer SPARSE_NUM_GLOBAL_BLOCKS:integer
        SPARSE_ATTENTION_TYPE:text SPARSE_HORIZONTAL_GLOBAL_ATTENTION:boolean
        SPARSE_NUM_DIFFERENT_GLOBAL_PATTERNS:integer SPARSE_NUM_RANDOM_BLOCKS:integer SPARSE_LOCAL_WINDOW_BLOCKS:list
        SPARSE_GLOBAL_BLOCK_INDICES:list SPARSE_GLOBAL_BLOCK_END_INDICES:list
        SPARSE_NUM_SLIDING_WINDOW_BLOCKS:integer"""),
    ("nebula", "nebula/constants.py", """NEBULA_ENABLED:boolean NEBULA_LOAD_PATH:text NEBULA_ENABLE_NEBULA_LOAD:boolean
        NEBULA_PERSISTENT_STORAGE_PATH:text NEBULA_PERSISTENT_TIME_INTERVAL:integer
        NEBULA_NUM_OF_VERSION_IN_RETENTION:integer"""),
    ("data_efficiency", "runtime/data_pipeline/constants.py", "DATA_EFFICIENCY_ENABLED:boolean DATA_EFFICIENCY_SEED:integer"),
    ("data_efficiency.data_sampling", "runtime/data_pipeline/constants.py", """DATA_SAMPLING_ENABLED:boolean
        DATA_SAMPLING_NUM_EPOCHS:integer DATA_SAMPLING_NUM_WORKERS:integer DATA_SAMPLING_PIN_MEMORY:boolean"""),
    ("data_efficiency.data_sampling.curriculum_learning", "runtime/data_pipeline/constants.py",
     "CURRICULUM_LEARNING_ENABLED:boolean CURRICULUM_LEARNING_CLUSTER_PATH:text"),
    ("data_efficiency.data_sampling.dynamic_batching", "runtime/data_pipeline/constants.py",
     """DYNAMIC_BATCHING_ENABLED:boolean DYNAMIC_BATCHING_METRICS_PATH:text DYNAMIC_BATCHING_LR_SCALING_METHOD:text
        DYNAMIC_BATCHING_MIN_BATCH_SIZE:integer DYNAMIC_BATCHING_MAX_BATCH_SIZE:integer
        DYNAMIC_BATCHING_SEQUENCE_PICKING_ORDER:text DYNAMIC_BATCHING_MAX_TOKENS:integer"""),
    ("data_efficiency.data_routing", "runtime/data_pipeline/constants.py", "DATA_ROUTING_ENABLED:boolean"),
    ("data_efficiency.data_routing.random_ltd", "runtime/data_pipeline/constants.py", "RANDOM_LTD_ENABLED:boolean"),
] + [("compression_training." + section, "compression/constants.py", pairs) for section, pairs in [
    ("weight_quantization.shared_parameters", """WEIGHT_QUANTIZE_ENABLED:boolean WEIGHT_QUANTIZE_KERNEL:boolean
        WEIGHT_QUANTIZE_SCHEDULE_OFFSET:integer WEIGHT_QUANTIZE_GROUPS:integer WEIGHT_QUANTIZE_VERBOSE:boolean
        WEIGHT_QUANTIZE_TYPE:text WEIGHT_QUANTIZE_ROUNDING:text WEIGHT_QUANTIZE_IN_FORWARD_ENABLED:boolean"""),
    ("weight_quantization.shared_parameters.fp16_mixed_quantize",
     "WEIGHT_QUANTIZE_FP16_MIXED_QUANTIZE_ENABLED:boolean WEIGHT_QUANTIZE_CHANGE_RATIO:number"),
    ("activation_quantization.shared_parameters", """ACTIVATION_QUANTIZATION_ENABLED:boolean ACTIVATION_QUANTIZE_TYPE:text
        ACTIVATION_QUANTIZE_RANGE:text ACTIVATION_QUANTIZE_SCHEDULE_OFFSET:integer"""),
    ("sparse_pruning.shared_parameters", """SPARSE_PRUNING_ENABLED:boolean SPARSE_PRUNING_METHOD:text
        SPARSE_PRUNING_SCHEDULE_OFFSET:integer SPARSE_PRUNING_SCHEDULE_OFFSET_END:integer
        SPARSE_PRUNING_SCHEDULE_OFFSET_STRIDE:integer SPARSE_PRUNING_BLOCK_PATTERN:text
        SPARSE_PRUNING_DENSE_RATIO:number SPARSE_PRUNING_EXCLUDED_MODULES:list"""),
    ("row_pruning.shared_parameters", "ROW_PRUNING_ENABLED:boolean ROW_PRUNING_METHOD:text ROW_PRUNING_SCHEDULE_OFFSET:integer"),
    ("head_pruning.shared_parameters", """HEAD_PRUNING_ENABLED:boolean HEAD_PRUNING_METHOD:text HEAD_PRUNING_SCHEDULE_OFFSET:integer
        HEAD_PRUNING_NUM_HEADS:integer"""),
    ("channel_pruning.shared_parameters",
     "CHANNEL_PRUNING_ENABLED:boolean CHANNEL_PRUNING_METHOD:text CHANNEL_PRUNING_SCHEDULE_OFFSET:integer"),
]]

# section, file, class: the arguments of __init__ after the parameters or the optimizer
SIGNATURES = [
    ("optimizer[Adam].params", "ops/adam/fused_adam.py", "FusedAdam"),
    ("optimizer[Adam].params", "ops/adam/cpu_adam.py", "DeepSpeedCPUAdam"),
    ("optimizer[Adagrad].params", "ops/adagrad/cpu_adagrad.py", "DeepSpeedCPUAdagrad"),
    ("optimizer[Lion].params", "ops/lion/fused_lion.py", "FusedLion"),
    ("optimizer[Lion].params", "ops/lion/cpu_lion.py", "DeepSpeedCPULion"),
    ("optimizer[Lamb].params", "ops/lamb/fused_lamb.py", "FusedLamb"),
    ("optimizer[OneBitAdam].params", "runtime/fp16/onebit/adam.py", "OnebitAdam"),
    ("optimizer[ZeroOneAdam].params", "runtime/fp16/onebit/zoadam.py", "ZeroOneAdam"),
    ("optimizer[OneBitLamb].params", "runtime/fp16/onebit/lamb.py", "OnebitLamb"),
    ("scheduler[LRRangeTest].params", "runtime/lr_schedules.py", "LRRangeTest"),
    ("scheduler[OneCycle].params", "runtime/lr_schedules.py", "OneCycle"),
    ("scheduler[WarmupLR].params", "runtime/lr_schedules.py", "WarmupLR"),
    ("scheduler[WarmupDecayLR].params", "runtime/lr_schedules.py", "WarmupDecayLR"),
    ("scheduler[WarmupCosineLR].params", "runtime/lr_schedules.py", "WarmupCosineLR"),
]

# What only the documentation, or code that takes a dictionary apart, knows: path:type=default
DOCUMENTED = """
sequence_parallel_size:integer=null allgather_size:integer=500000000
optimizer.type:text=null optimizer.params:map=null optimizer.legacy_fusion:boolean=false
scheduler.type:text=null scheduler.params:map=null
optimizer[Adam].params.torch_adam:boolean=false
optimizer[Muon].params.lr:number=0.001 optimizer[Muon].params.momentum:number=0.95
optimizer[Muon].params.weight_decay:number=0.0 optimizer[Muon].params.muon_lr:number=null
optimizer[Muon].params.adam_lr:number=null optimizer[Muon].params.ns_method:text="gram"
amp.opt_level:text=null
zero_optimization.grad_hooks:boolean=true
zero_optimization.zeropp_loco_param.err_beta:number=0.8 zero_optimization.zeropp_loco_param.reset_T:integer=1024
aio.thread_count:integer=1
quantize_training:map=null
data_efficiency.data_sampling.dynamic_batching.verbose:boolean=false
pipeline.stages:any="auto" pipeline.partition:text="best" pipeline.seed_layers:boolean=false
pipeline.activation_checkpoint_interval:integer=0 pipeline.pipe_partitioned:boolean=true
pipeline.grad_partitioned:boolean=true pipeline.use_reentrant:boolean=true
elasticity.prefer_large_batch:boolean=true
datastates_ckpt:map=null
tensor_parallel.partition_config.use_default_specs:boolean=true tensor_parallel.partition_config.layer_specs:list=[]
tensor_parallel.partition_config.strict_mode:boolean=false
tensor_parallel.partition_config.tp_size:integer=1
tensor_parallel.partition_config.embedding_partition_dim:integer=1
tensor_parallel.partition_config.lm_head_patterns:list=["lm_head","embed_out"]
tensor_parallel.partition_config.layer_specs[].patterns:list=[]
tensor_parallel.partition_config.layer_specs[].partition_type:text="column"
tensor_parallel.partition_config.layer_specs[].shape:list=null
tensor_parallel.partition_config.layer_specs[].partition_dim:integer=null
tensor_parallel.partition_config.layer_specs[].model_types:list=null
tensor_parallel.partition_config.layer_specs[].gather_output:boolean=false
tensor_parallel.partition_config.layer_specs[].grad_allreduce:boolean=false
data_efficiency.data_routing.random_ltd.total_layer_num:integer=-
data_efficiency.data_routing.random_ltd.random_ltd_layer_num:integer=-
data_efficiency.data_routing.random_ltd.random_ltd_layer_id:list=-
data_efficiency.data_routing.random_ltd.model_mask_name:text=-
data_efficiency.data_routing.random_ltd.model_type:text=-
data_efficiency.data_routing.random_ltd.hidden_state_order:text=-
data_efficiency.data_routing.random_ltd.micro_batch_size:integer=-
data_efficiency.data_routing.random_ltd.global_batch_size:integer=-
data_efficiency.data_routing.random_ltd.layer_token_lr_schedule:map=null
data_efficiency.data_routing.random_ltd.random_ltd_schedule.min_value:integer=-
data_efficiency.data_routing.random_ltd.random_ltd_schedule.max_value:integer=-
data_efficiency.data_routing.random_ltd.random_ltd_schedule.schedule_type:text=-
data_efficiency.data_routing.random_ltd.random_ltd_schedule.schedule_config.require_steps:integer=-
data_efficiency.data_routing.random_ltd.random_ltd_schedule.schedule_config.seq_per_step:integer=-
""" + "".join("""
data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.*.%s""" % row for row in """
index_to_sample_path:text=- index_to_metric_path:text=- difficulty_type:text=- clustering_type:text=-
min_difficulty:integer=- max_difficulty:integer=- schedule_type:text=- schedule_config.total_curriculum_step:integer=-
schedule_config.difficulty_step:integer=- schedule_config.root_degree:integer=- schedule_config.difficulty:list=-
schedule_config.max_step:list=-""".split()) + "".join("""
curriculum_learning.%s""" % row for row in """
enabled:boolean=false curriculum_type:text=- min_difficulty:integer=- max_difficulty:integer=- schedule_type:text=-
schedule_config.total_curriculum_step:integer=- schedule_config.difficulty_step:integer=-
schedule_config.root_degree:integer=- schedule_config.difficulty:list=- schedule_config.max_step:list=-
""".split()) + """
compression_training.layer_reduction.enabled:boolean=false compression_training.layer_reduction.keep_number_layer:integer=-
compression_training.layer_reduction.module_name_prefix:text=- compression_training.layer_reduction.teacher_layer:list=-
compression_training.layer_reduction.other_module_name:list=-
""" + "".join("""
compression_training.%s.different_groups.*.%s""" % (section, row) for section, rows in [
    ("weight_quantization", "params.start_bits:integer=8 params.target_bits:integer=8 params.quantization_period:integer=1"),
    ("activation_quantization", "params.bits:integer=8"),
    ("sparse_pruning", "params.dense_ratio:number=0.5"), ("row_pruning", "params.dense_ratio:number=0.5"),
    ("head_pruning", "params.dense_ratio:number=0.5"), ("channel_pruning", "params.dense_ratio:number=0.5"),
] for row in rows.split() + ["modules:list=\"*\"", "related_modules:list=null"])

TYPES = {"bool": "boolean", "int": "integer", "float": "number", "str": "text", "Path": "text", "list": "list",
         "tuple": "list", "torch.dtype": "text", "OffloadDeviceEnum": "text", "QuantTypeEnum": "text",
         "ZeroStageEnum": "integer", "object": "any"}


def tree(name):
    with open(os.path.join(ROOT, "deepspeed", name), encoding="utf-8") as file:
        return ast.parse(file.read())


def kind(annotation, default):
    """The type that an annotation means, without Optional; of a signature without annotations, the default's."""
    if annotation is None and default == "-":
        return "number"  # OneCycle's learning rates are the only ones
    if annotation is None:
        return {bool: "boolean", int: "integer", float: "number", str: "text", list: "list"}.get(type(default), "any")
    text = ast.unparse(annotation)
    text = re.sub(r"^Optional\[(.*)\]$", r"\1", text)
    text = "|".join(part for part in text.split(" | ") if part != "None")
    if text in TYPES:
        return TYPES[text]
    if text.startswith("Literal["):
        return "text"
    if re.match(r"(List|Tuple)\[", text):
        return "list"
    return "map" if text.startswith("Dict") or text.endswith("Config") else "any"


def value(node, known):
    """The value of a default: constants, calls of Field, pp_int and default factories, arithmetic."""
    if node is None:
        return None
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func)
        keywords = {word.arg: word.value for word in node.keywords}
        if name == "Field":
            if node.args:
                return value(node.args[0], known)
            if "default_factory" in keywords:
                body = keywords["default_factory"]
                return value(body.body, known) if isinstance(body, ast.Lambda) else None
            return value(keywords.get("default"), known)
        if name == "field":
            return value(keywords.get("default"), known)
        if name in ("pp_int", "list"):
            inside = value(node.args[0], known)
            return int(inside) if name == "pp_int" else inside
    text = ast.unparse(node)
    if text == "sys.maxsize":
        return 2**63 - 1
    if text == "torch.float16":
        return "fp16"
    enums = {"QuantTypeEnum.sym": "symmetric", "ValidationMode.WARN": "WARN", "CheckpointWriterType.FAST": "FAST"}
    if text in enums:
        return enums[text]
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.Attribute):
        return known.get(node.attr)
    return eval(compile(ast.Expression(node), "default", "eval"), {"__builtins__": {}}, dict(known))  # arithmetic


def constants(module, known):
    for node in module.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name) and isinstance(node, (ast.Assign, ast.AnnAssign)):
            try:
                known[target.id] = value(node.value, known)
            except (NameError, TypeError, SyntaxError, AttributeError):
                pass  # not a plain value, and no default either
    return known


def add(path, type_, default, source):
    if path.split(".")[-1].startswith("_") or any(row[0] == path for row in ROWS):
        return
    ROWS.append((path, type_, default if default == "-" else json.dumps(default, separators=(",", ":")), source))


def class_fields(section, name, class_):
    known = constants(tree("constants.py"), constants(tree("comm/constants.py"), {}))
    module = tree(name)
    constants(module, known)
    classes = {node.name: node for node in module.body if isinstance(node, ast.ClassDef)}
    chain = [classes[class_]]
    while chain[-1].bases and ast.unparse(chain[-1].bases[0]) in classes:
        chain.append(classes[ast.unparse(chain[-1].bases[0])])
    for part in chain:
        for node in part.body:
            if isinstance(node, ast.AnnAssign):
                alias = [word.value.value for word in getattr(node.value, "keywords", []) if word.arg == "alias"]
                default = value(node.value, known)
                field = node.target.id if not alias or len(alias[0]) < len(node.target.id) else alias[0]
                type_ = kind(node.annotation, default)
                if type_ == "map" and default == {}:
                    default = None
                add(section + "." + field, type_, default, name)


def dictionary(section, name, pairs):
    known = constants(tree(name), {})
    for pair in pairs.split():
        constant, type_ = pair.split(":")
        add((section + "." if section else "") + known[constant], type_, known.get(constant + "_DEFAULT"), name)


def signature(section, name, class_):
    module = tree(name)
    known = constants(module, {})
    body = next(node for node in module.body if isinstance(node, ast.ClassDef) and node.name == class_).body
    arguments = next(node for node in body if isinstance(node, ast.FunctionDef) and node.name == "__init__").args
    names, defaults = arguments.args[2:], arguments.defaults
    for i, argument in enumerate(names):
        at = i - (len(names) - len(defaults))
        default = value(defaults[at], known) if at >= 0 else "-"
        default = list(default) if isinstance(default, tuple) else default
        if argument.arg not in ("deepspeed", "adamw_mode"):
            add(section + "." + argument.arg, kind(argument.annotation, default), default, name)


def documented():
    page = "docs/_pages/config-json.md"
    for row in DOCUMENTED.split():
        path, rest = row.split(":", 1)
        type_, default = rest.split("=", 1)
        add(path, type_, default if default == "-" else json.loads(default), page)
    with open(os.path.join(ROOT, page), encoding="utf-8") as file:
        names = re.findall(r"\*\*([A-Za-z0-9_:]+)\*\*+(?:</i>)?:? *\[", file.read())
    known = {part for row in ROWS for part in re.split(r"[.\[\]]+", row[0])}
    missing = {name.split(":")[-1] for name in names} - known
    if missing:
        sys.exit("explained in %s, but in no row: %s" % (page, ", ".join(sorted(missing))))


for entry in DICTIONARIES[:2]:
    dictionary(*entry)
for entry in CLASSES:
    class_fields(*entry)
for entry in DICTIONARIES[2:]:
    dictionary(*entry)
for entry in SIGNATURES:
    signature(*entry)
documented()
with open(os.path.join(ROOT, "version.txt"), encoding="utf-8") as file:
    print("# Keys of DeepSpeed %s, made by gather_keys.py: path, type, default as JSON, where it is from" % file.read().strip())
for row in ROWS:
    print("\t".join(row))
