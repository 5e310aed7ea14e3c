// What DeepSpeed's values may be: shared by the tables of its keys and of optimizer and scheduler parameters.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/value.h"
#include "runtime/job/deepspeed.h"

namespace ds {

/// Throws ValueError where `value` is not of that type; null and "auto" are for the caller.
void CheckType(const Value& value, DeepSpeedType type);

/// The word "auto", which configurations for Hugging Face's trainer have.
bool IsAuto(const Value& value);

/// Whether a value turns something off: null, false, "none", nothing in it, `enabled: false`, or a map of such.
bool IsOff(const Value& value);

/// Whether `value` is one of `accepts`: JSON scalars, [] or {} separated by '|'; "any": everything, "off": IsOff.
/// Numbers are compared as numbers, text without regard to case. Null is always accepted: the key is as good as absent.
bool IsAccepted(const Value& value, const std::string& accepts);

/// The alternatives of `accepts` as a message lists them.
std::string ShowAccepted(const std::string& accepts);

}  // namespace ds
