// The kernels' formulas, written plainly in fp64. Shapes are those of the kernels' headers.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

namespace ds::test::reference {

using Values = std::vector<double>;
using std::size_t;

inline Values MatMul(size_t m, size_t n, size_t k, const Values& a, bool transpose_a, const Values& b, bool transpose_b,
                     double alpha = 1) {
  Values c(m * n);
  for (size_t i = 0; i < m; ++i)
    for (size_t j = 0; j < n; ++j) {
      double sum = 0;
      for (size_t l = 0; l < k; ++l)
        sum += (transpose_a ? a[l * m + i] : a[i * k + l]) * (transpose_b ? b[j * k + l] : b[l * n + j]);
      c[i * n + j] = alpha * sum;
    }
  return c;
}

struct NormResult {
  Values y, mean, rstd;
};

inline NormResult LayerNorm(size_t d, const Values& x, const Values& weight, const Values& bias, double eps) {
  NormResult r{Values(x.size()), Values(x.size() / d), Values(x.size() / d)};
  for (size_t row = 0; row < x.size() / d; ++row) {
    double mean = 0, variance = 0;
    for (size_t i = 0; i < d; ++i) mean += x[row * d + i] / static_cast<double>(d);
    for (size_t i = row * d; i < (row + 1) * d; ++i) variance += (x[i] - mean) * (x[i] - mean) / static_cast<double>(d);
    r.mean[row] = mean;
    r.rstd[row] = 1 / std::sqrt(variance + eps);
    for (size_t i = 0; i < d; ++i) r.y[row * d + i] = (x[row * d + i] - mean) * r.rstd[row] * weight[i] + bias[i];
  }
  return r;
}

inline NormResult RmsNorm(size_t d, const Values& x, const Values& weight, double eps) {
  NormResult r{Values(x.size()), {}, Values(x.size() / d)};
  for (size_t row = 0; row < x.size() / d; ++row) {
    double squares = 0;
    for (size_t i = 0; i < d; ++i) squares += x[row * d + i] * x[row * d + i];
    r.rstd[row] = 1 / std::sqrt(squares / static_cast<double>(d) + eps);
    for (size_t i = 0; i < d; ++i) r.y[row * d + i] = x[row * d + i] * r.rstd[row] * weight[i];
  }
  return r;
}

inline double GeluExact(double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }
inline double GeluTanh(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

/// f of every element.
inline Values Map(const Values& x, const std::function<double(double)>& f) {
  Values y(x.size());
  std::transform(x.begin(), x.end(), y.begin(), f);
  return y;
}

inline Values Swiglu(size_t width, const Values& gate_up) {
  Values y(gate_up.size() / 2);
  for (size_t i = 0; i < y.size(); ++i) {
    const size_t row = i / width, column = i % width;
    const double gate = gate_up[row * 2 * width + column], up = gate_up[row * 2 * width + width + column];
    y[i] = gate / (1 + std::exp(-gate)) * up;
  }
  return y;
}

/// Losses a row.
inline Values CrossEntropy(size_t padded, size_t vocabulary, const Values& logits,
                           const std::vector<int32_t>& targets) {
  Values losses(targets.size());
  for (size_t row = 0; row < targets.size(); ++row) {
    if (targets[row] < 0) continue;
    const double* l = logits.data() + row * padded;
    const double largest = *std::max_element(l, l + vocabulary);
    double sum = 0;
    for (size_t j = 0; j < vocabulary; ++j) sum += std::exp(l[j] - largest);
    losses[row] = largest + std::log(sum) - l[targets[row]];
  }
  return losses;
}

/// Turns the first `heads` heads of x [batch, tokens, total, size]; direction -1 turns back.
inline Values Rope(size_t tokens, size_t total, size_t size, size_t heads, double theta, double direction, Values x) {
  for (size_t row = 0; row < x.size() / (total * size); ++row)
    for (size_t h = 0; h < heads; ++h)
      for (size_t i = 0; i < size / 2; ++i) {
        double& a = x[(row * total + h) * size + i];
        double& b = x[(row * total + h) * size + i + size / 2];
        const double angle = direction * static_cast<double>(row % tokens) *
                             std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(size));
        const double turned = a * std::cos(angle) - b * std::sin(angle);
        b = b * std::cos(angle) + a * std::sin(angle);
        a = turned;
      }
  return x;
}

struct AttentionResult {
  Values out, log_sum_exp;
};

/// factor(index) multiplies the probability with that index (dropout). first_key: [batch * tokens], the first key that
/// a query sees; empty: 0.
inline AttentionResult Attention(size_t batch, size_t tokens, size_t heads, size_t kv_heads, size_t size,
                                 const Values& qkv, const std::function<double(uint64_t)>& factor,
                                 const std::vector<int32_t>& first_key = {}) {
  AttentionResult r{Values(batch * tokens * heads * size), Values(batch * heads * tokens)};
  const size_t width = heads + 2 * kv_heads;
  const auto at = [&](size_t b, size_t t, size_t slot) {
    return qkv.data() + ((b * tokens + t) * width + slot) * size;
  };
  for (size_t b = 0; b < batch; ++b)
    for (size_t h = 0; h < heads; ++h)
      for (size_t i = 0; i < tokens; ++i) {
        const size_t kv = h * kv_heads / heads;
        const size_t first = first_key.empty() ? 0 : static_cast<size_t>(first_key[b * tokens + i]);
        Values score(i + 1);
        double sum = 0;
        for (size_t j = first; j <= i; ++j) {
          for (size_t d = 0; d < size; ++d) score[j] += at(b, i, h)[d] * at(b, j, heads + kv)[d];
          score[j] /= std::sqrt(static_cast<double>(size));
          sum += std::exp(score[j]);
        }
        const size_t row = (b * heads + h) * tokens + i;
        r.log_sum_exp[row] = std::log(sum);
        for (size_t j = first; j <= i; ++j) {
          const double p = std::exp(score[j]) / sum * factor(row * tokens + j);
          for (size_t d = 0; d < size; ++d)
            r.out[((b * tokens + i) * heads + h) * size + d] += p * at(b, j, heads + kv_heads + kv)[d];
        }
      }
  return r;
}

}  // namespace ds::test::reference
