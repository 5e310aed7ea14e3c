# cuDNN: CUDNN_FOUND and the target CUDNN::CUDNN. Looks where CUDNN_ROOT or CUDNN_PATH say (CMake or environment), then
# beside the CUDA toolkit, then where the system keeps libraries.
set(hints ${CUDNN_PATH} $ENV{CUDNN_PATH} $ENV{CUDNN_ROOT} ${CUDAToolkit_ROOT} ${CUDAToolkit_TARGET_DIR}
          ${CUDAToolkit_LIBRARY_ROOT})
find_path(CUDNN_INCLUDE_DIR cudnn.h HINTS ${hints} ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
find_library(CUDNN_LIBRARY cudnn HINTS ${hints} ${CUDAToolkit_LIBRARY_DIR} PATH_SUFFIXES lib lib64)
if(CUDNN_INCLUDE_DIR AND EXISTS ${CUDNN_INCLUDE_DIR}/cudnn_version.h)
  file(STRINGS ${CUDNN_INCLUDE_DIR}/cudnn_version.h lines REGEX "#define CUDNN_(MAJOR|MINOR|PATCHLEVEL) [0-9]")
  string(REGEX REPLACE "[^;]* ([0-9]+)[^;]*" "\\1" numbers "${lines}")
  string(REPLACE ";" "." CUDNN_VERSION "${numbers}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CUDNN REQUIRED_VARS CUDNN_LIBRARY CUDNN_INCLUDE_DIR VERSION_VAR CUDNN_VERSION)
mark_as_advanced(CUDNN_INCLUDE_DIR CUDNN_LIBRARY)
if(CUDNN_FOUND AND NOT TARGET CUDNN::CUDNN)
  add_library(CUDNN::CUDNN UNKNOWN IMPORTED)
  set_target_properties(CUDNN::CUDNN PROPERTIES IMPORTED_LOCATION ${CUDNN_LIBRARY}
                                                INTERFACE_INCLUDE_DIRECTORIES ${CUDNN_INCLUDE_DIR})
endif()
