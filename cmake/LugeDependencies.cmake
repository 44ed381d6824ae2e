# What Luge is built on. Each is wrapped in an interface target, so that the rest of the build does
# not ask how it was found.
find_package(ZLIB REQUIRED)

# oneDNN: 2.6 to 3.x; cpu/onednn.c adapts.
find_path(LUGE_DNNL_INCLUDE NAMES oneapi/dnnl/dnnl.h REQUIRED)
find_library(LUGE_DNNL_LIBRARY NAMES dnnl REQUIRED)
add_library(luge_dnnl INTERFACE)
target_include_directories(luge_dnnl SYSTEM INTERFACE ${LUGE_DNNL_INCLUDE})
target_link_libraries(luge_dnnl INTERFACE ${LUGE_DNNL_LIBRARY})

# jansson: JSON of safetensors headers.
find_path(LUGE_JANSSON_INCLUDE NAMES jansson.h REQUIRED)
find_library(LUGE_JANSSON_LIBRARY NAMES jansson REQUIRED)
add_library(luge_json INTERFACE)
target_include_directories(luge_json SYSTEM INTERFACE ${LUGE_JANSSON_INCLUDE})
target_link_libraries(luge_json INTERFACE ${LUGE_JANSSON_LIBRARY})
