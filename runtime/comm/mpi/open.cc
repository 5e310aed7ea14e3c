#include <dlfcn.h>

#include <cstdlib>

#include "runtime/base/error.h"
#include "runtime/base/process.h"
#include "runtime/comm/mpi/library.h"

namespace ds {

std::unique_ptr<MpiLibrary> OpenMpi() {
  // Open MPI's TCP ends this process when a peer's connection breaks: not before others have told which, and why.
  ::setenv("OMPI_MCA_opal_abort_delay", "2", /*overwrite=*/0);
  const std::string file = ExecutableFolder() + "/libds_mpi.so";
  // Global: what MPI loads by itself looks for MPI's own symbols.
  void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!library) {
    const char* why = ::dlerror();
    throw RuntimeError(std::string("MPI cannot be loaded: ") + (why ? why : file) +
                       " (libds_mpi.so is built where CMake finds MPI, and needs libmpi.so of Open MPI)");
  }
  auto* open = reinterpret_cast<MpiLibrary* (*)(char*, int)>(::dlsym(library, "ds_mpi_open"));
  if (!open) throw RuntimeError(file + " is not DeepShard's");
  char failure[256] = "";
  std::unique_ptr<MpiLibrary> mpi(open(failure, sizeof failure));
  if (!mpi) throw RuntimeError(std::string("MPI cannot be used: ") + failure);
  return mpi;
}

}  // namespace ds
