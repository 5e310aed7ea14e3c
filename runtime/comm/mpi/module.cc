// libds_mpi.so: MpiLibrary over the MPI that it is linked with.
#include <mpi.h>

#include <cstdio>
#include <cstring>
#include <new>

#include "runtime/comm/mpi/library.h"

namespace ds {
namespace {

class Module final : public MpiLibrary {
 public:
  /// Why it cannot be used; empty: it can.
  std::string Begin() {
    int provided = MPI_THREAD_SINGLE;
    if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS) return "MPI_Init failed";
    if (provided < MPI_THREAD_SERIALIZED) return "this MPI was built without MPI_THREAD_SERIALIZED";
    // A communicator of our own: messages of others never meet ours. Its errors are values.
    if (MPI_Comm_dup(MPI_COMM_WORLD, &world_) != MPI_SUCCESS) return "MPI_Comm_dup failed";
    MPI_Comm_set_errhandler(world_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(world_, &rank_);
    MPI_Comm_size(world_, &size_);
    int *limit = nullptr, found = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &limit, &found);
    if (found) max_tag_ = *limit;
    return "";
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int max_tag() const override { return max_tag_; }

  std::string version() const override {
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    MPI_Get_library_version(text, &length);
    std::string version(text);
    return version.substr(0, version.find_first_of(",\n"));
  }

  Request Send(const void* data, int64_t bytes, int peer, int tag) override {
    return Begun([&](MPI_Request* request) {
      return MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, peer, tag, world_, request);
    });
  }
  Request Receive(void* data, int64_t bytes, int peer, int tag) override {
    return Begun([&](MPI_Request* request) {
      return MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, peer, tag, world_, request);
    });
  }

  bool Test(Request& request, std::string& failure) override {
    auto* held = static_cast<Held*>(request);
    if (!held) return true;
    int done = held->error != MPI_SUCCESS;
    if (!done) held->error = MPI_Test(&held->request, &done, MPI_STATUS_IGNORE);
    if (held->error != MPI_SUCCESS) {
      char text[MPI_MAX_ERROR_STRING] = "";
      int length = 0;
      MPI_Error_string(held->error, text, &length);
      failure = text;
      done = 1;
    }
    if (!done) return false;
    delete held;
    request = nullptr;
    return true;
  }

  void Cancel(Request& request) override {
    auto* held = static_cast<Held*>(request);
    if (!held) return;
    if (held->error == MPI_SUCCESS && held->request != MPI_REQUEST_NULL) {
      MPI_Cancel(&held->request);
      MPI_Request_free(&held->request);
    }
    delete held;
    request = nullptr;
  }

  bool Probe(int tag, int& sender, int64_t& bytes) override {
    int found = 0, count = 0;
    MPI_Status status;
    if (MPI_Iprobe(MPI_ANY_SOURCE, tag, world_, &found, &status) != MPI_SUCCESS || !found) return false;
    MPI_Get_count(&status, MPI_BYTE, &count);
    sender = status.MPI_SOURCE;
    bytes = count;
    return true;
  }

  void Finalize() override {
    MPI_Comm_free(&world_);
    MPI_Finalize();
  }

 private:
  struct Held {
    MPI_Request request = MPI_REQUEST_NULL;
    int error = MPI_SUCCESS;  ///< of the call that began it: told by Test
  };

  template <class Begin>
  static Request Begun(Begin begin) {
    auto* held = new Held;
    held->error = begin(&held->request);
    return held;
  }

  MPI_Comm world_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1, max_tag_ = 32767;
};

}  // namespace
}  // namespace ds

/// Null, and why in `failure` (`size` bytes).
extern "C" [[gnu::visibility("default")]] ds::MpiLibrary* ds_mpi_open(char* failure, int size) {
  auto* module = new ds::Module;
  const std::string why = module->Begin();
  if (why.empty()) return module;
  std::snprintf(failure, static_cast<size_t>(size), "%s", why.c_str());
  delete module;
  return nullptr;
}
