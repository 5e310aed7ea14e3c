#include "proto/repair_strings.h"

#include <string>
#include <utility>
#include <vector>

#include "runtime/base/text.h"

namespace ds {

void RepairStrings(google::protobuf::Message& message) {
  using google::protobuf::FieldDescriptor;
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;  // those that are set
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const int count = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      for (int i = 0; i < count; ++i)
        RepairStrings(*(field->is_repeated() ? reflection.MutableRepeatedMessage(&message, field, i)
                                             : reflection.MutableMessage(&message, field)));
    }
    if (field->type() != FieldDescriptor::TYPE_STRING) continue;
    for (int i = 0; i < count; ++i) {
      const std::string text =
          field->is_repeated() ? reflection.GetRepeatedString(message, field, i) : reflection.GetString(message, field);
      std::string repaired = RepairUtf8(text);
      if (repaired == text) continue;
      if (field->is_repeated())
        reflection.SetRepeatedString(&message, field, i, std::move(repaired));
      else
        reflection.SetString(&message, field, std::move(repaired));
    }
  }
}

}  // namespace ds
