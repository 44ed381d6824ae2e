# The CUDA module, libluge_cuda.so: a shared object of its own, which the library opens at run time where a
# driver is. It is built where the CUDA toolkit and cuDNN are (LUGE_CUDA: AUTO, ON or OFF); tests/cuda builds
# the same sources for an emulated GPU, for which headers are enough.
set(LUGE_CUDA AUTO CACHE STRING "Build the CUDA module: AUTO (if the toolkit and cuDNN are found), ON or OFF")
set_property(CACHE LUGE_CUDA PROPERTY STRINGS AUTO ON OFF)
set(LUGE_CUDA_ARCHITECTURES "80-real;90" CACHE STRING "GPUs to build for, as CMAKE_CUDA_ARCHITECTURES; the default: Ampere, Hopper, and later ones through PTX")

# Headers, on their own: LUGE_CUDA_HEADERS is empty unless all are there.
find_path(LUGE_CUDART_INCLUDE NAMES cuda_runtime_api.h HINTS ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES include)
find_path(LUGE_CUBLAS_INCLUDE NAMES cublasLt.h HINTS ${LUGE_CUDART_INCLUDE})
find_path(LUGE_CUDNN_INCLUDE NAMES cudnn.h HINTS ENV CUDNN_HOME ${LUGE_CUDART_INCLUDE} PATH_SUFFIXES include)
set(LUGE_CUDA_HEADERS)
if(LUGE_CUDART_INCLUDE AND LUGE_CUBLAS_INCLUDE AND LUGE_CUDNN_INCLUDE)
  set(LUGE_CUDA_HEADERS ${LUGE_CUDART_INCLUDE} ${LUGE_CUBLAS_INCLUDE} ${LUGE_CUDNN_INCLUDE})
  list(REMOVE_DUPLICATES LUGE_CUDA_HEADERS)
endif()

# What the module is made of. It links nothing of the library: what computes and keeps nothing is compiled
# into it, the rest comes through the table in cuda/module.h.
file(GLOB LUGE_CUDA_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/cuda/*.c)
file(GLOB LUGE_CUDA_KERNELS CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/cuda/*.cu)
list(APPEND LUGE_CUDA_SOURCES ${PROJECT_SOURCE_DIR}/core/dtype.c ${PROJECT_SOURCE_DIR}/core/iter.c ${PROJECT_SOURCE_DIR}/core/shape.c)

# Sets LUGE_CUDA_MISSING to what the module lacks; empty: it can be built.
function(luge_find_cuda)
  set(LUGE_CUDA_MISSING "" PARENT_SCOPE)
  include(CheckLanguage)
  check_language(CUDA)
  find_package(CUDAToolkit QUIET)
  # Wheels of cuDNN have no plain symbolic link.
  find_library(LUGE_CUDNN_LIBRARY NAMES cudnn libcudnn.so.9 HINTS ENV CUDNN_HOME ${CUDAToolkit_LIBRARY_DIR} PATH_SUFFIXES lib lib64)
  if(LUGE_SANITIZE)
    set(LUGE_CUDA_MISSING "a build without sanitizers" PARENT_SCOPE)
  elseif(NOT CMAKE_CUDA_COMPILER)
    set(LUGE_CUDA_MISSING "nvcc" PARENT_SCOPE)
  elseif(NOT LUGE_CUDA_HEADERS)
    set(LUGE_CUDA_MISSING "the headers of the CUDA runtime, cuBLAS and cuDNN" PARENT_SCOPE)
  elseif(NOT TARGET CUDA::cudart_static OR NOT TARGET CUDA::cublas OR NOT TARGET CUDA::cublasLt)
    set(LUGE_CUDA_MISSING "the libraries of the CUDA runtime and cuBLAS" PARENT_SCOPE)
  elseif(NOT LUGE_CUDNN_LIBRARY)
    set(LUGE_CUDA_MISSING "the library of cuDNN" PARENT_SCOPE)
  endif()
endfunction()

# Host code in C, kernels by nvcc.
function(luge_add_cuda_module)
  add_library(luge_cuda MODULE ${LUGE_CUDA_SOURCES} ${LUGE_CUDA_KERNELS})
  target_include_directories(luge_cuda PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
  target_include_directories(luge_cuda SYSTEM PRIVATE ${LUGE_CUDA_HEADERS})
  target_compile_options(luge_cuda PRIVATE
    $<$<COMPILE_LANGUAGE:C>:$<TARGET_PROPERTY:luge_flags,INTERFACE_COMPILE_OPTIONS>>
    $<$<COMPILE_LANGUAGE:CUDA>:-Xfatbin=-compress-all -Xptxas=-warn-spills,-warn-lmem-usage>
    $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${LUGE_WERROR}>>:-Werror=all-warnings>)
  if(LUGE_BUILD_TESTS) # tests/cuda/gates.sh looks at the PTX
    set(LUGE_CUDA_PTX ${CMAKE_BINARY_DIR}/ptx)
    file(MAKE_DIRECTORY ${LUGE_CUDA_PTX})
    target_compile_options(luge_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-keep> $<$<COMPILE_LANGUAGE:CUDA>:-keep-dir=${LUGE_CUDA_PTX}>)
  endif()
  set_target_properties(luge_cuda PROPERTIES
    CUDA_ARCHITECTURES "${LUGE_CUDA_ARCHITECTURES}" CUDA_STANDARD 17 CUDA_VISIBILITY_PRESET hidden CUDA_RUNTIME_LIBRARY Static
    INSTALL_RPATH_USE_LINK_PATH ON LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cuda/module.map)
  find_package(Threads REQUIRED)
  target_link_libraries(luge_cuda PRIVATE CUDA::cudart_static CUDA::cublas CUDA::cublasLt ${LUGE_CUDNN_LIBRARY} Threads::Threads m)
  target_link_options(luge_cuda PRIVATE LINKER:-z,defs LINKER:--version-script=${PROJECT_SOURCE_DIR}/cuda/module.map)
endfunction()

if(LUGE_CUDA)
  luge_find_cuda()
  if(NOT LUGE_CUDA_MISSING)
    set(CMAKE_CUDA_ARCHITECTURES ${LUGE_CUDA_ARCHITECTURES}) # CMake's own default may be one that nvcc has dropped
    enable_language(CUDA)
    luge_add_cuda_module()
  elseif(LUGE_CUDA STREQUAL "AUTO")
    message(STATUS "No CUDA module: it needs ${LUGE_CUDA_MISSING}")
  else()
    message(FATAL_ERROR "LUGE_CUDA=ON needs ${LUGE_CUDA_MISSING}")
  endif()
endif()
