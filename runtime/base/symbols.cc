#include "runtime/base/symbols.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

namespace ds {
namespace {

struct Function {
  uintptr_t begin, end;
  std::string name;
};

/// Where the executable was loaded, relative to the addresses in its file.
uintptr_t LoadBias() {
  uintptr_t bias = 0;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        *static_cast<uintptr_t*>(out) = info->dlpi_addr;
        return 1;  // the first is the executable
      },
      &bias);
  return bias;
}

/// A file in memory.
struct Mapping {
  explicit Mapping(const char* path) {
    const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
    struct stat status {};
    if (fd >= 0 && ::fstat(fd, &status) == 0 && status.st_size > 0) {
      void* memory = ::mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
      if (memory != MAP_FAILED) bytes = {static_cast<const char*>(memory), static_cast<size_t>(status.st_size)};
    }
    if (fd >= 0) ::close(fd);
  }
  ~Mapping() {
    if (!bytes.empty()) ::munmap(const_cast<char*>(bytes.data()), bytes.size());
  }
  template <class T>
  const T* At(uint64_t offset, uint64_t count = 1) const {
    if (offset > bytes.size() || count > (bytes.size() - offset) / sizeof(T)) return nullptr;
    return reinterpret_cast<const T*>(bytes.data() + offset);
  }
  std::string_view bytes;
};

/// Functions of the executable's symbol table, by address.
std::vector<Function> ReadFunctions() {
  std::vector<Function> functions;
  const Mapping file("/proc/self/exe");
  const auto* header = file.At<Elf64_Ehdr>(0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_ident[EI_CLASS] != ELFCLASS64)
    return functions;
  const auto* sections = file.At<Elf64_Shdr>(header->e_shoff, header->e_shnum);
  if (!sections) return functions;
  const uintptr_t bias = LoadBias();
  for (int i = 0; i < header->e_shnum; ++i) {
    if (sections[i].sh_type != SHT_SYMTAB || sections[i].sh_link >= header->e_shnum) continue;
    const uint64_t count = sections[i].sh_size / sizeof(Elf64_Sym);
    const auto* symbols = file.At<Elf64_Sym>(sections[i].sh_offset, count);
    const Elf64_Shdr& strings = sections[sections[i].sh_link];
    const char* names = file.At<char>(strings.sh_offset, strings.sh_size);
    if (!symbols || !names) continue;
    for (uint64_t s = 0; s < count; ++s) {
      const Elf64_Sym& symbol = symbols[s];
      if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_size == 0 || symbol.st_name >= strings.sh_size)
        continue;
      const char* name = names + symbol.st_name;
      functions.push_back({bias + symbol.st_value, bias + symbol.st_value + symbol.st_size,
                           std::string(name, ::strnlen(name, strings.sh_size - symbol.st_name))});
    }
  }
  std::sort(functions.begin(), functions.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  return functions;
}

std::string Demangled(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status),
                                                    std::free);
  return status == 0 && text ? text.get() : name;
}

std::string Hex(uintptr_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "+0x%lx", static_cast<unsigned long>(value));
  return text;
}

}  // namespace

std::string SymbolOf(const void* pointer) {
  static const auto* functions = new std::vector<Function>(ReadFunctions());
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  Dl_info info{};
  const bool known = ::dladdr(pointer, &info) != 0;
  std::string module = known && info.dli_fname ? info.dli_fname : "";
  module = module.substr(module.rfind('/') + 1);
  auto next = std::upper_bound(functions->begin(), functions->end(), address,
                               [](uintptr_t a, const Function& function) { return a < function.begin; });
  if (next != functions->begin() && address < std::prev(next)->end) {
    const Function& function = *std::prev(next);
    return Demangled(function.name) + Hex(address - function.begin) + " (" + module + ")";
  }
  if (known && info.dli_sname) {
    return Demangled(info.dli_sname) + Hex(address - reinterpret_cast<uintptr_t>(info.dli_saddr)) + " (" + module + ")";
  }
  if (known && info.dli_fbase) return module + Hex(address - reinterpret_cast<uintptr_t>(info.dli_fbase));
  return "unknown code at " + Hex(address).substr(1);
}

}  // namespace ds
