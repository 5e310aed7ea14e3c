#include "test/unit/gpu/attention_bounds.h"

#include <algorithm>
#include <cmath>

namespace ds::test {
namespace {

/// A sum of n terms whose magnitudes add up to m is off by at most kLikely * sqrt(n) * unit * m, except with a
/// probability that no test meets (Higham, Mary 2019).
constexpr double kLikely = 5;

/// What a dtype's arithmetic does to numbers.
struct Rounding {
  double stored;  ///< relative error of a value that is rounded to the dtype
  double lost;    ///< and its absolute error where it is denormal
  double summed;  ///< relative error of a step of sums
  double power;   ///< relative error of an exponential of an exact argument

  explicit Rounding(DType dtype) {
    switch (dtype) {
      case DType::f64:
        stored = 0x1p-53, lost = 0, summed = 0x1p-53, power = 0x1p-51;
        break;
      case DType::f32:
        stored = 0x1p-24, lost = 0, summed = 0x1p-24, power = 0x1p-22;
        break;
      case DType::bf16:  // tensor cores cut off what they add
        stored = 0x1p-8, lost = 0, summed = 0x1p-22, power = 0x1p-21;
        break;
      default:
        stored = 0x1p-11, lost = 0x1p-25, summed = 0x1p-22, power = 0x1p-21;
    }
  }
  double Sum(int64_t n) const { return kLikely * std::sqrt(static_cast<double>(n)) * summed; }
};

/// Of one head of one sample: what its rows add to the bounds.
class HeadBounds {
 public:
  HeadBounds(const AttentionShape& shape, DType dtype, const Values& qkv, const Values& dout, int64_t sample,
             int64_t head)
      : s_(shape),
        round_(dtype),
        size_(static_cast<size_t>(shape.head_size)),
        sample_(sample),
        head_(head),
        kv_(head / (shape.heads / shape.kv_heads)),
        qkv_(qkv),
        dout_(dout),
        dkey_(static_cast<size_t>(shape.tokens) * size_),
        dvalue_(dkey_.size()),
        key_gradient_(dkey_.size()),
        value_gradient_(dkey_.size()) {}

  /// This head's part of the errors, [T, head_size].
  const Values& dkey() const { return dkey_; }
  const Values& dvalue() const { return dvalue_; }
  /// Adds those of rounding this head's gradients.
  void RoundGradients() {
    for (size_t i = 0; i < dkey_.size(); ++i) {
      dkey_[i] += round_.stored * std::fabs(key_gradient_[i]) + round_.lost;
      dvalue_[i] += round_.stored * std::fabs(value_gradient_[i]) + round_.lost;
    }
  }

  /// A row that sees keys from `first` on.
  void AddRow(int64_t row, size_t first, const std::function<double(uint64_t)>& factor, AttentionBounds& bounds) {
    const size_t seen = static_cast<size_t>(row) + 1;
    const double scale = 1 / std::sqrt(static_cast<double>(s_.head_size));
    const double *q = At(row, head_), *d = dout_.data() + OutAt(row);
    Values p(seen), dp(seen), dp_size(seen), factors(seen), out(size_), out_size(size_), value_size(size_);
    double largest = -HUGE_VAL, score_error = 0, score_size = 0;
    for (size_t j = first; j < seen; ++j) {
      const double *k = Key(j), *v = Value(j);
      double score = 0, size = 0;
      for (size_t c = 0; c < size_; ++c) {
        score += q[c] * k[c] * scale;
        size += std::fabs(q[c] * k[c]) * scale;
        dp[j] += d[c] * v[c];
        dp_size[j] += std::fabs(d[c] * v[c]);
      }
      p[j] = score;
      largest = std::max(largest, score);
      score_error = std::max(score_error, round_.Sum(s_.head_size) * size);
      score_size = std::max(score_size, std::fabs(score));
    }
    double sum = 0;
    for (size_t j = first; j < seen; ++j) sum += p[j] = std::exp(p[j] - largest);
    const auto index = static_cast<uint64_t>((sample_ * s_.heads + head_) * s_.tokens + row);
    for (size_t j = first; j < seen; ++j) {
      p[j] /= sum;
      factors[j] = factor(index * static_cast<uint64_t>(s_.tokens) + j);
      for (size_t c = 0; c < size_; ++c) {
        out[c] += p[j] * factors[j] * Value(j)[c];
        out_size[c] += p[j] * factors[j] * std::fabs(Value(j)[c]);
        value_size[c] += factors[j] * std::fabs(Value(j)[c]);
      }
    }
    // Scores are off by score_error and by roundings of the exponential's argument; a probability is a quotient of two
    // exponentials.
    const double lse = largest + std::log(sum), sums = round_.Sum(row + 1);
    const double p_error = 2 * (score_error + 4 * round_.summed * score_size + round_.power) + sums;
    bounds.log_sum_exp[static_cast<size_t>(index)] = p_error + 4 * round_.summed * std::fabs(lse);
    for (size_t c = 0; c < size_; ++c)
      bounds.out[OutAt(row) + c] = out_size[c] * (p_error + round_.stored + sums) + value_size[c] * round_.lost +
                                   std::fabs(out[c]) * round_.stored + round_.lost;

    // delta = dout . out, where out was rounded, and summed of rounded probabilities.
    double delta = 0, delta_size = 0, delta_error = round_.lost;
    for (size_t c = 0; c < size_; ++c) delta += d[c] * out[c], delta_size += std::fabs(d[c] * out[c]);
    for (size_t j = first; j < seen; ++j)
      delta_error += (p[j] * (p_error + round_.stored) + round_.lost) * factors[j] * std::fabs(dp[j]) +
                     p[j] * factors[j] * dp_size[j] * sums;
    for (size_t c = 0; c < size_; ++c) delta_error += std::fabs(d[c]) * round_.lost;
    delta_error += delta_size * (round_.stored + round_.Sum(s_.head_size));

    // Probabilities are computed anew from a log_sum_exp with its own error.
    const double again = 2 * p_error + 8 * round_.summed * (std::fabs(lse) + score_size);
    const double row_sums = round_.Sum(s_.tokens * s_.heads / s_.kv_heads);
    double* dquery = bounds.dqkv.data() + QkvAt(row, head_);
    for (size_t j = first; j < seen; ++j) {
      const double difference = dp[j] * factors[j] - delta;
      const double terms = std::fabs(dp[j]) * factors[j] + std::fabs(delta);
      const double ds = p[j] * scale * difference;
      const double ds_error =
          p[j] * scale *
              ((again + 4 * round_.summed) * terms + delta_error + factors[j] * dp_size[j] * round_.Sum(s_.head_size)) +
          std::fabs(ds) * round_.stored + round_.lost;
      for (size_t c = 0; c < size_; ++c) {
        dquery[c] += (ds_error + std::fabs(ds) * sums) * std::fabs(Key(j)[c]);
        key_gradient_[j * size_ + c] += ds * q[c];
        value_gradient_[j * size_ + c] += p[j] * factors[j] * d[c];
        dkey_[j * size_ + c] += (ds_error + std::fabs(ds) * row_sums) * std::fabs(q[c]);
        dvalue_[j * size_ + c] +=
            (p[j] * (again + round_.stored + row_sums) + round_.lost) * factors[j] * std::fabs(d[c]);
      }
    }
  }

 private:
  size_t QkvAt(int64_t token, int64_t slot) const {
    return static_cast<size_t>((sample_ * s_.tokens + token) * (s_.heads + 2 * s_.kv_heads) + slot) * size_;
  }
  size_t OutAt(int64_t token) const {
    return static_cast<size_t>((sample_ * s_.tokens + token) * s_.heads + head_) * size_;
  }
  const double* At(int64_t token, int64_t slot) const { return qkv_.data() + QkvAt(token, slot); }
  const double* Key(size_t j) const { return At(static_cast<int64_t>(j), s_.heads + kv_); }
  const double* Value(size_t j) const { return At(static_cast<int64_t>(j), s_.heads + s_.kv_heads + kv_); }

  AttentionShape s_;
  Rounding round_;
  size_t size_;
  int64_t sample_, head_, kv_;
  const Values &qkv_, &dout_;
  Values dkey_, dvalue_, key_gradient_, value_gradient_;
};

}  // namespace

AttentionBounds BoundsOf(const AttentionShape& shape, DType dtype, const Values& qkv, const Values& dout,
                         const Values& dqkv, const std::function<double(uint64_t)>& factor, bool each_head_rounded,
                         const std::vector<int32_t>& first_key) {
  AttentionBounds bounds{Values(dout.size()), Values(static_cast<size_t>(shape.batch * shape.heads * shape.tokens)),
                         Values(qkv.size())};
  std::vector<HeadBounds> heads;
  for (int64_t i = 0; i < shape.batch * shape.heads; ++i)
    heads.emplace_back(shape, dtype, qkv, dout, i / shape.heads, i % shape.heads);
#pragma omp parallel for schedule(dynamic)
  for (size_t i = 0; i < heads.size(); ++i) {
    const int64_t sample = static_cast<int64_t>(i) / shape.heads;
    for (int64_t row = 0; row < shape.tokens; ++row) {
      const int32_t first = first_key.empty() ? 0 : first_key[static_cast<size_t>(sample * shape.tokens + row)];
      heads[i].AddRow(row, static_cast<size_t>(first), factor, bounds);
    }
    if (each_head_rounded) heads[i].RoundGradients();
  }
  const auto size = static_cast<size_t>(shape.head_size), width = static_cast<size_t>(shape.heads + 2 * shape.kv_heads);
  for (size_t i = 0; i < heads.size(); ++i) {
    const size_t sample = i / static_cast<size_t>(shape.heads), head = i % static_cast<size_t>(shape.heads);
    const size_t slot = static_cast<size_t>(shape.heads) + head / static_cast<size_t>(shape.heads / shape.kv_heads);
    for (size_t t = 0; t < static_cast<size_t>(shape.tokens); ++t)
      for (size_t c = 0; c < size; ++c) {
        double* key = &bounds.dqkv[((sample * static_cast<size_t>(shape.tokens) + t) * width + slot) * size + c];
        key[0] += heads[i].dkey()[t * size + c];
        key[static_cast<size_t>(shape.kv_heads) * size] += heads[i].dvalue()[t * size + c];
      }
  }
  const Rounding round(dtype);
  for (size_t i = 0; i < dqkv.size(); ++i) bounds.dqkv[i] += round.stored * std::fabs(dqkv[i]) + round.lost;
  return bounds;
}

}  // namespace ds::test
