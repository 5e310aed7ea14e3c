#include "runtime/checkpoint/safetensors.h"

#include <cstring>
#include <numeric>

#include "runtime/base/error.h"
#include "test/unit/data/temp_folder.h"

namespace ds {
namespace {

using test::Contains;
using test::MessageOf;
using test::TempFolder;
namespace fs = std::filesystem;

/// A file of that JSON header and so many bytes of data.
std::string File(const std::string& header, size_t data_bytes) {
  uint64_t size = header.size();
  std::string bytes(reinterpret_cast<const char*>(&size), 8);
  return bytes + header + std::string(data_bytes, 'd');
}

}  // namespace

TEST_CASE("tensors written in pieces come back, with the checksum of the file") {
  TempFolder folder;
  std::vector<float> a(6);
  std::iota(a.begin(), a.end(), 0.5f);
  const uint16_t b[3] = {1, 2, 3};
  SafetensorsWriter writer(folder / "a.safetensors",
                           {{"layer.weight", DType::f32, {2, 3}}, {"b", DType::bf16, {3}}, {"scalar", DType::u8, {}}},
                           {{"format", "pt"}});
  writer.Append(a.data(), 10);
  writer.Append(reinterpret_cast<const char*>(a.data()) + 10, 14);
  writer.Append(b, 6);
  CHECK_THROWS_AS(writer.Finish(), RuntimeError);
  writer.Append("!", 1);
  CHECK_THROWS_AS(writer.Append("!", 1), RuntimeError);
  const SafetensorsWriter::Result result = writer.Finish();
  CHECK(result.bytes == static_cast<int64_t>(fs::file_size(folder / "a.safetensors")));
  CHECK(result.xxh64 == ChecksumFile(folder / "a.safetensors"));

  SafetensorsFile file(folder / "a.safetensors");
  CHECK(file.metadata().at("format") == "pt");
  REQUIRE(file.entries().size() == 3);
  const auto& weight = file.At("layer.weight");
  CHECK(weight.dtype == "F32");
  CHECK(weight.shape == std::vector<int64_t>{2, 3});
  CHECK(std::memcmp(weight.data, a.data(), 24) == 0);
  CHECK(file.At("b").dtype == "BF16");
  CHECK(std::memcmp(file.At("b").data, b, 6) == 0);
  CHECK(file.At("scalar").numel() == 1);
  CHECK(Contains(MessageOf<RuntimeError>([&] { file.At("c"); }), "no tensor c"));
  CHECK_THROWS_AS(SafetensorsWriter(folder / "a.safetensors", {}), RuntimeError);  // never over an existing file
}

TEST_CASE("the layout on disk is the format's") {
  TempFolder folder;
  SafetensorsWriter writer(folder / "a.safetensors", {{"x", DType::f32, {1}}});
  const float value = 1;
  writer.Append(&value, 4);
  writer.Finish();
  const std::string bytes = ReadFile(folder / "a.safetensors");
  const std::string header = "{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}";
  REQUIRE(bytes.size() % 8 == 4);
  CHECK(bytes.substr(0, 8) == std::string("\x38\0\0\0\0\0\0\0", 8));
  CHECK(bytes.substr(8, header.size()) == header);
  CHECK(bytes.substr(8 + 56) == std::string("\0\0\x80\x3f", 4));
}

TEST_CASE("a file without tensors is valid") {
  TempFolder folder;
  SafetensorsWriter(folder / "a.safetensors", {}).Finish();
  CHECK(SafetensorsFile(folder / "a.safetensors").entries().empty());
}

TEST_CASE("headers that lie are refused, and the file is named") {
  TempFolder folder;
  const fs::path path = folder / "a.safetensors";
  auto error = [&](const std::string& bytes) {
    test::Overwrite(path, bytes);
    const std::string message = MessageOf<RuntimeError>([&] { SafetensorsFile file(path); });
    CHECK(Contains(message, path.string()));
    return message;
  };
  auto tensor = [](const std::string& fields) { return "{\"x\":{" + fields + "}}"; };

  CHECK(Contains(error(""), "no safetensors file"));
  CHECK(Contains(error("1234567"), "no safetensors file"));
  CHECK(Contains(error(std::string("\xff\xff\xff\xff\xff\xff\xff\xff", 8)), "not a safetensors file"));
  CHECK(Contains(error(std::string("\x10\0\0\0\0\0\0\0{}", 10)), "cut short"));
  CHECK(Contains(error(File("[]", 0)), "does not begin"));
  CHECK(Contains(error(File("{\"x\":", 0)), "header:1:"));
  CHECK(Contains(error(File("{\"x\":3}", 0)), "not an object"));
  CHECK(Contains(error(File("{\"__metadata__\":3}", 0)), "__metadata__"));
  CHECK(Contains(error(File(tensor("\"shape\":[1],\"data_offsets\":[0,4]"), 4)), "tensor x lacks `dtype`"));
  CHECK(Contains(error(File(tensor("\"dtype\":\"F32\",\"data_offsets\":[0,4]"), 4)), "lacks `shape`"));
  CHECK(Contains(error(File(tensor("\"dtype\":\"F32\",\"shape\":[1]"), 4)), "lacks `data_offsets`"));
  CHECK(Contains(error(File(tensor("\"dtype\":\"F99\",\"shape\":[1],\"data_offsets\":[0,4]"), 4)), "unknown dtype"));
  CHECK(Contains(error(File(tensor("\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]"), 4)), "negative"));
  CHECK(Contains(error(File(tensor("\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,4]"), 4)),
                 "impossible shape"));
  CHECK(Contains(error(File(tensor("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]"), 4)), "takes 4 bytes"));
  CHECK(Contains(error(File(tensor("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]"), 4)), "data_offsets"));
  CHECK(Contains(error(File(tensor("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]"), 4)), "data_offsets"));
  CHECK(Contains(error(File(tensor("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]"), 3)), "cut short"));
  CHECK(Contains(error(File(tensor("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]"), 5)),
                 "the data has 5 bytes"));
  CHECK(Contains(error(File(tensor("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]"), 8)), "a hole"));
  const std::string two =
      "{\"x\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
      "\"y\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[2,6]}}";
  CHECK(Contains(error(File(two, 6)), "tensors overlap"));
  const std::string twice =
      "{\"x\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
      "\"x\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]}}";
  CHECK(Contains(error(File(twice, 8)), "x"));
}

TEST_CASE("a file cut at any byte is refused") {
  TempFolder folder;
  SafetensorsWriter writer(folder / "a.safetensors", {{"x", DType::f32, {3}}, {"y", DType::f32, {1}}});
  writer.Append(std::string(16, 'x').data(), 16);
  writer.Finish();
  const std::string whole = ReadFile(folder / "a.safetensors");
  for (size_t size = 0; size < whole.size(); ++size) {
    CAPTURE(size);
    test::Overwrite(folder / "b.safetensors", whole.substr(0, size));
    CHECK_THROWS_AS(SafetensorsFile(folder / "b.safetensors"), RuntimeError);
  }
}

}  // namespace ds
