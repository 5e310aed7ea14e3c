# MPI: for agents that mpirun brings up, and for workers that run without agents. Optional: elsewhere the build goes on
# without it, and what needs it is refused at run time, with this reason.
set(MPI_CXX_SKIP_MPICXX TRUE)  # MPI's C interface alone: Open MPI 5 has no other
find_package(MPI QUIET COMPONENTS CXX)
set(DEEPSHARD_HAS_MPI FALSE)
if(MPI_CXX_FOUND)
  set(DEEPSHARD_HAS_MPI TRUE)
  add_library(ds_mpi_interface INTERFACE)
  # Without the C++ bindings' library, which the compiler wrapper names too and not every node has.
  set(libraries ${MPI_CXX_LIBRARIES})
  list(FILTER libraries EXCLUDE REGEX "mpi_cxx")
  target_include_directories(ds_mpi_interface SYSTEM INTERFACE ${MPI_CXX_INCLUDE_DIRS})
  target_compile_definitions(ds_mpi_interface INTERFACE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
  target_link_libraries(ds_mpi_interface INTERFACE ${libraries})
  message(STATUS "MPI: ${MPI_CXX_LIBRARY_VERSION_STRING} (--bootstrap mpi, and MPI between workers without agents)")
else()
  message(STATUS "MPI: not found, so built without --bootstrap mpi and without MPI between workers "
                 "(Debian: apt-get install libopenmpi-dev)")
endif()
