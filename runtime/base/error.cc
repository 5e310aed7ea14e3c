#include "runtime/base/error.h"

#include <system_error>

namespace ds {

SystemError::SystemError(const std::string& what, int errno_value)
    : RuntimeError(what + ": " + std::generic_category().message(errno_value)) {}

}  // namespace ds
