#include "kernels/matmul_onednn.h"

#include <omp.h>

#include <bit>
#include <memory>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <shared_mutex>
#include <string_view>
#include <unordered_map>

#include "kernels/aligned_memory.h"

namespace ds::detail {
namespace {

/// oneDNN asks OpenMP how many threads to use, when it creates a primitive and when it runs it: one, for as long as
/// this lives. The setting belongs to the calling thread alone.
class SingleThreaded {
 public:
  SingleThreaded() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~SingleThreaded() { omp_set_num_threads(before_); }
  SingleThreaded(const SingleThreaded&) = delete;
  SingleThreaded& operator=(const SingleThreaded&) = delete;

 private:
  int before_;
};

/// What a primitive depends on: everything but the addresses.
struct Key {
  int64_t m, n, k, lda, ldb, ldc;
  DType ab, c_type, bias_type;
  bool transpose_a, transpose_b, accumulate, has_bias;
  float alpha;
  bool operator==(const Key&) const = default;
};

Key KeyOf(const BlockProduct& p) {
  return {p.m,
          p.n,
          p.k,
          p.lda,
          p.ldb,
          p.ldc,
          p.ab,
          p.c_type,
          p.bias_type,
          p.transpose_a,
          p.transpose_b,
          p.accumulate,
          p.bias != nullptr,
          p.alpha};
}

struct KeyHash {
  size_t operator()(const Key& key) const {
    uint64_t h = 0;
    auto mix = [&h](uint64_t v) { h = (h ^ v) * 0x9e3779b97f4a7c15u, h ^= h >> 29; };
    for (int64_t v : {key.m, key.n, key.k, key.lda, key.ldb, key.ldc}) mix(static_cast<uint64_t>(v));
    mix(static_cast<uint64_t>(key.ab) | static_cast<uint64_t>(key.c_type) << 8 |
        static_cast<uint64_t>(key.bias_type) << 16 | uint64_t{key.transpose_a} << 24 | uint64_t{key.transpose_b} << 25 |
        uint64_t{key.accumulate} << 26 | uint64_t{key.has_bias} << 27);
    mix(std::bit_cast<uint32_t>(key.alpha));
    return h;
  }
};

dnnl::engine& Engine() {
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::memory::data_type TypeOf(DType t) {
  return t == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

dnnl::memory::desc Matrix(int64_t rows, int64_t columns, DType type, int64_t leading, bool transposed) {
  return {{rows, columns}, TypeOf(type), transposed ? dnnl::memory::dims{1, leading} : dnnl::memory::dims{leading, 1}};
}

/// A created primitive and what is needed to run it.
struct Primitive {
  dnnl::matmul matmul;
  dnnl::memory::desc a, b, c, bias, scratchpad;
  int bias_argument = 0;
};

/// Null where oneDNN has only its reference implementation, which is far slower than converting to fp32.
std::shared_ptr<const Primitive> Create(const Key& key) {
  auto made = std::make_shared<Primitive>();
  made->a = Matrix(key.m, key.k, key.ab, key.lda, key.transpose_a);
  made->b = Matrix(key.k, key.n, key.ab, key.ldb, key.transpose_b);
  made->c = Matrix(key.m, key.n, key.c_type, key.ldc, false);
  made->bias = Matrix(1, key.n, key.bias_type, key.n, false);

  // alpha is for the product alone, and oneDNN applies post-operations after its own bias: with an alpha the bias
  // becomes a post-operation too.
  const bool scaled = key.alpha != 1.0f, bias_after = key.has_bias && scaled;
  dnnl::post_ops after;
#if DNNL_VERSION_MAJOR >= 3
  if (scaled) after.append_eltwise(dnnl::algorithm::eltwise_linear, key.alpha, 0.0f);
#else
  if (scaled) after.append_eltwise(1.0f, dnnl::algorithm::eltwise_linear, key.alpha, 0.0f);
#endif
  if (bias_after) {
    made->bias_argument = DNNL_ARG_ATTR_MULTIPLE_POST_OP(after.len()) | DNNL_ARG_SRC_1;
    after.append_binary(dnnl::algorithm::binary_add, made->bias);
  } else if (key.has_bias) {
    made->bias_argument = DNNL_ARG_BIAS;
  }
  if (key.accumulate) after.append_sum(1.0f);
  dnnl::primitive_attr attributes;
  attributes.set_post_ops(after);
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  attributes.set_fpmath_mode(dnnl::fpmath_mode::strict);

  const bool own_bias = key.has_bias && !bias_after;
#if DNNL_VERSION_MAJOR >= 3
  auto description =
      own_bias ? dnnl::matmul::primitive_desc(Engine(), made->a, made->b, made->bias, made->c, attributes, true)
               : dnnl::matmul::primitive_desc(Engine(), made->a, made->b, made->c, attributes, true);
#else
  auto operation = own_bias ? dnnl::matmul::desc(made->a, made->b, made->bias, made->c)
                            : dnnl::matmul::desc(made->a, made->b, made->c);
  dnnl::matmul::primitive_desc description(operation, attributes, Engine(), true);
#endif
  if (!description) return nullptr;
  const bool plain = key.ab == DType::f32 && !scaled;  // what MultiplyConverted falls back to: accepted as it is
  if (!plain && std::string_view(description.impl_info_str()).substr(0, 3) == "ref") return nullptr;
  made->scratchpad = description.scratchpad_desc();
  made->matmul = dnnl::matmul(description);
  return made;
}

/// Primitives by what they depend on. A job has a few hundred; when text generation walks through lengths the cache is
/// emptied at its limit (users hold what they run).
class Cache {
 public:
  std::shared_ptr<const Primitive> Get(const Key& key) {
    {
      std::shared_lock lock(mutex_);
      if (auto found = primitives_.find(key); found != primitives_.end()) return found->second;
    }
    auto made = Create(key);  // outside the lock: two threads may both create, one is kept
    std::unique_lock lock(mutex_);
    if (primitives_.size() >= kLimit) primitives_.clear();
    return primitives_.try_emplace(key, std::move(made)).first->second;
  }

 private:
  static constexpr size_t kLimit = 2048;
  std::shared_mutex mutex_;
  std::unordered_map<Key, std::shared_ptr<const Primitive>, KeyHash> primitives_;
};

Cache& Primitives() {
  Engine();  // made first, so destroyed last: primitives refer to it
  static Cache cache;
  return cache;
}

/// The calling thread's scratchpad, of at least `bytes`.
void* Scratchpad(size_t bytes) {
  static thread_local AlignedMemory memory;
  static thread_local size_t size = 0;
  if (bytes > size) {
    memory.reset();
    size = 0;
    memory = AllocateAligned(static_cast<int64_t>(bytes));
    size = bytes;
  }
  return memory.get();
}

}  // namespace

bool MultiplyWithOneDnn(const BlockProduct& p) {
  SingleThreaded one_thread;
  const std::shared_ptr<const Primitive> primitive = Primitives().Get(KeyOf(p));
  if (!primitive) return false;
  static thread_local dnnl::stream stream(Engine());
  const auto memory = [](const dnnl::memory::desc& desc, const void* data) {
    return dnnl::memory(desc, Engine(), const_cast<void*>(data));
  };
  std::unordered_map<int, dnnl::memory> arguments{{DNNL_ARG_SRC, memory(primitive->a, p.a)},
                                                  {DNNL_ARG_WEIGHTS, memory(primitive->b, p.b)},
                                                  {DNNL_ARG_DST, memory(primitive->c, p.c)}};
  if (p.bias) arguments.emplace(primitive->bias_argument, memory(primitive->bias, p.bias));
  if (size_t bytes = primitive->scratchpad.get_size())
    arguments.emplace(DNNL_ARG_SCRATCHPAD, memory(primitive->scratchpad, Scratchpad(bytes)));
  primitive->matmul.execute(stream, arguments);
  stream.wait();
  return true;
}

}  // namespace ds::detail
