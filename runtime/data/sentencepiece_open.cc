#include <dlfcn.h>

#include <filesystem>

#include "runtime/base/error.h"
#include "runtime/data/sentencepiece/library.h"

namespace ds {
namespace {

constexpr const char* kFile = "libds_sentencepiece.so";

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define DS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define DS_SANITIZED 1
#endif
#endif

#ifdef DS_SANITIZED
// Sanitizers do not allow RTLD_DEEPBIND. Programs without Protocol Buffers of their own do without it.
constexpr int kKeepApart = 0;
#else
constexpr int kKeepApart = RTLD_DEEPBIND;
#endif

void RefuseToMix() {
  if (kKeepApart == 0 && ::dlsym(RTLD_DEFAULT, "_ZN6google8protobuf11MessageLite14ParseFromArrayEPKvi"))
    throw RuntimeError("this program is built with a sanitizer and uses Protocol Buffers: it cannot open " +
                       std::string(kFile) + "; prepare token files with `ds-convert data` and train on those");
}

const SentencePieceLibrary& Open() {
  RefuseToMix();
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path file = program.parent_path() / kFile;
  void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | kKeepApart);
  if (!library) throw RuntimeError(std::string("tokenizer files need ") + kFile + ": " + ::dlerror());
  auto* entry = reinterpret_cast<const SentencePieceLibrary* (*)()>(::dlsym(library, "ds_sentencepiece_library"));
  if (!entry) throw RuntimeError(file.string() + " is of another build: " + ::dlerror());
  return *entry();
}

}  // namespace

const SentencePieceLibrary& OpenSentencePiece() {
  static const SentencePieceLibrary& library = Open();
  return library;
}

}  // namespace ds
