// Marks functions that GPU code calls too. Internal to kernels/.
#pragma once

#if defined(__CUDACC__)
#define DS_HOST_DEVICE __host__ __device__
#else
#define DS_HOST_DEVICE
#endif
