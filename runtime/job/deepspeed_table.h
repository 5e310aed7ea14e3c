// How the rows of DeepSpeed's table are written down, and the files that hold them.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "runtime/job/deepspeed.h"

namespace ds::deepspeed_table {

using Keys = std::vector<DeepSpeedKey>;
using Reader = std::function<void(DeepSpeedDraft&, const Value&)>;

inline DeepSpeedKey Honoured(const char* path, DeepSpeedType type, const char* fallback, const char* meaning,
                             Reader read) {
  return {path, type, DeepSpeedClass::honoured, fallback, "", meaning, std::move(read), ""};
}

inline DeepSpeedKey Always(const char* path, DeepSpeedType type, const char* fallback, const char* accepts,
                           const char* why) {
  return {path, type, DeepSpeedClass::by_construction, fallback, accepts, why, {}, ""};
}

/// Only the default is accepted, or what `also` lists.
inline DeepSpeedKey Refused(const char* path, DeepSpeedType type, const char* fallback, const char* why,
                            const char* also = "") {
  const std::string accepts = *also == '\0' ? std::string(fallback) : std::string(fallback) + "|" + also;
  return {path, type, DeepSpeedClass::refused, fallback, accepts, why, {}, ""};
}

struct IdleKey {
  const char* name;
  DeepSpeedType type;
  const char* fallback;
};

/// Keys of `section` that are of no use here, because of what `off` says.
inline void AddIdle(Keys& keys, const std::string& section, const std::string& off,
                    std::initializer_list<IdleKey> rows) {
  for (const IdleKey& row : rows) {
    keys.push_back({section + "." + row.name,
                    row.type,
                    DeepSpeedClass::refused,
                    row.fallback,
                    "any",
                    "of no effect: " + off,
                    {},
                    off});
  }
}

/// A section with a switch NAME.enabled, which is refused with `why`, and keys that are idle without it.
inline void AddSwitched(Keys& keys, const std::string& section, const char* why, std::initializer_list<IdleKey> rows,
                        const char* name = "enabled") {
  const std::string path = section + "." + name;
  keys.push_back(Refused(path.c_str(), DeepSpeedType::boolean, "false", why));
  AddIdle(keys, section, path + " is false", rows);
}

Keys GeneralKeys();      ///< batch sizes, communication, logging
Keys PrecisionKeys();    ///< bf16, fp16, data types, autocast
Keys ZeroKeys();         ///< zero_optimization
Keys OffloadKeys();      ///< offloading: zero_optimization's and aio
Keys ParallelKeys();     ///< tensor, pipeline, experts
Keys RuntimeKeys();      ///< storage, checkpoints, activations, compilation
Keys ObserverKeys();     ///< profilers, loggers, tuners
Keys TechniqueKeys();    ///< data efficiency, sparsity, layer drop
Keys CompressionKeys();  ///< quantization and pruning

}  // namespace ds::deepspeed_table
