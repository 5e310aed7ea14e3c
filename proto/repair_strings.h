// Text in messages is UTF-8: protobuf writes other bytes without a word, and whoever reads the message refuses it
// whole.
#pragma once

#include <google/protobuf/message.h>

namespace ds {

/// Each malformed byte of the message's strings, and of those within, becomes U+FFFD; `bytes` fields stay as they are.
void RepairStrings(google::protobuf::Message& message);

}  // namespace ds
