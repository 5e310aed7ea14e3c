namespace ds::cuda {

/// See cuda_twins.h.
extern const char kLinked;
const char kLinked = 1;

}  // namespace ds::cuda
