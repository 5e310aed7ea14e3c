#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "runtime/base/error.h"
#include "runtime/base/failpoint.h"
#include "runtime/base/json.h"
#include "runtime/checkpoint/safetensors.h"

namespace ds {

static_assert(std::endian::native == std::endian::little, "files are little-endian and are written as memory has them");

namespace {

constexpr int64_t kBlock = 1 << 20;  // bytes

}  // namespace

const char* SafetensorsName(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return "F64";
    case DType::f32:
      return "F32";
    case DType::bf16:
      return "BF16";
    case DType::f16:
      return "F16";
    case DType::i64:
      return "I64";
    case DType::i32:
      return "I32";
    case DType::u16:
      return "U16";
    case DType::u8:
      return "U8";
    case DType::f8_e4m3:
      return "F8_E4M3";
    case DType::f8_e5m2:
      return "F8_E5M2";
  }
  return "?";
}

int64_t SafetensorsEntry::bytes() const {
  int64_t n = static_cast<int64_t>(SizeOf(dtype));
  for (int64_t d : shape) n *= d;
  return n;
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, std::vector<SafetensorsEntry> entries,
                                     const std::map<std::string, std::string>& metadata)
    : path_(path) {
  JsonWriter json;
  json.BeginObject();
  if (!metadata.empty()) {
    json.Key("__metadata__").BeginObject();
    for (const auto& [key, value] : metadata) json.Field(key, value);
    json.EndObject();
  }
  for (const SafetensorsEntry& entry : entries) {
    json.Key(entry.name).BeginObject().Field("dtype", SafetensorsName(entry.dtype)).Key("shape").BeginList();
    for (int64_t d : entry.shape) json.Write(d);
    json.EndList().Key("data_offsets").BeginList().Write(left_).Write(left_ + entry.bytes()).EndList().EndObject();
    left_ += entry.bytes();
  }
  std::string header = json.EndObject().str();
  header.append((8 - header.size() % 8) % 8, ' ');

  fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd_ < 0) throw SystemError("cannot create " + path.string(), errno);
  uint64_t size = header.size();
  Write(&size, sizeof size);
  Write(header.data(), static_cast<int64_t>(header.size()));
}

SafetensorsWriter::~SafetensorsWriter() {
  if (fd_ >= 0) ::close(fd_);
}

void SafetensorsWriter::Write(const void* data, int64_t bytes) {
  const char* p = static_cast<const char*>(data);
  while (bytes > 0) {
    const int64_t block = std::min(bytes, kBlock);  // hashed and written while it is in the cache
    checksum_.Update(p, static_cast<size_t>(block));
    WriteBlock(p, block);
    p += block;
    bytes -= block;
    result_.bytes += block;
  }
}

void SafetensorsWriter::WriteBlock(const char* data, int64_t bytes) {
  if (const int error = FailpointError("safetensors.write")) throw SystemError("cannot write " + path_.string(), error);
  while (bytes > 0) {
    ssize_t n = ::write(fd_, data, static_cast<size_t>(bytes));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw SystemError("cannot write " + path_.string(), errno);
    data += n;
    bytes -= n;
  }
}

void SafetensorsWriter::Append(const void* data, int64_t bytes) {
  if (bytes > left_) throw RuntimeError(path_.string() + ": more data than its tensors need");
  left_ -= bytes;
  Write(data, bytes);
}

SafetensorsWriter::Result SafetensorsWriter::Finish() {
  if (left_ != 0) throw RuntimeError(path_.string() + ": " + std::to_string(left_) + " bytes of data were not written");
  if (const int error = FailpointError("safetensors.sync")) throw SystemError("cannot sync " + path_.string(), error);
  if (::fsync(fd_) != 0) throw SystemError("cannot sync " + path_.string(), errno);
  int fd = fd_;
  fd_ = -1;
  if (::close(fd) != 0) throw SystemError("cannot close " + path_.string(), errno);
  result_.xxh64 = checksum_.Value();
  return result_;
}

}  // namespace ds
