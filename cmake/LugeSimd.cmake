# cpu/simd/*.c are compiled once per instruction set; cpu/cpu_backend.c picks one set of kernels by
# what the processor has. LG_ISA names the set in symbols.
file(GLOB simd_sources CONFIGURE_DEPENDS cpu/simd/*.c)
set(LUGE_ISAS base)
set(LUGE_ISA_FLAGS_base "")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND LUGE_ISAS avx2 avx512)
  set(LUGE_ISA_FLAGS_avx2 -mavx2 -mfma -mf16c -mtune=haswell)
  set(LUGE_ISA_FLAGS_avx512 -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl -mtune=skylake-avx512 -mprefer-vector-width=512)
  target_compile_definitions(luge_cpu PRIVATE LG_HAVE_X86_ISAS)
endif()
# Options of a source come behind luge_flags' -ffp-contract=off: these are made of fused multiply-adds.
set_source_files_properties(cpu/simd/map_f32.c cpu/simd/random.c cpu/simd/reduce.c PROPERTIES COMPILE_OPTIONS -ffp-contract=fast)
set_source_files_properties(cpu/simd/simd_tile.c cpu/simd/simd_softmax.c cpu/simd/simd_loss.c PROPERTIES COMPILE_OPTIONS -ffp-contract=fast)
if(simd_sources)
  foreach(isa IN LISTS LUGE_ISAS)
    add_library(luge_simd_${isa} OBJECT ${simd_sources})
    target_link_libraries(luge_simd_${isa} PRIVATE luge_flags)
    target_include_directories(luge_simd_${isa} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
    # Always optimised: unvectorised kernels would make every debug test run crawl. Integers wrap around,
    # as tensors of them do.
    target_compile_options(luge_simd_${isa} PRIVATE -O3 -fno-trapping-math -fwrapv ${LUGE_ISA_FLAGS_${isa}})
    # clang tells of each loop that it left as it was: that is about speed, and about the set without vectors.
    target_compile_options(luge_simd_${isa} PRIVATE $<$<C_COMPILER_ID:Clang,AppleClang>:-Wno-pass-failed>)
    target_compile_definitions(luge_simd_${isa} PRIVATE LG_ISA=${isa})
    list(APPEND LUGE_OBJECTS $<TARGET_OBJECTS:luge_simd_${isa}>)
  endforeach()
endif()
