# Installation: headers, both libraries, a CMake package (find_package(luge): luge::luge and
# luge::luge_static) and luge.pc for pkg-config. All of it can be moved: paths are relative.
include(CMakePackageConfigHelpers)

set(LUGE_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/luge)
set_target_properties(luge_shared PROPERTIES EXPORT_NAME luge)
install(TARGETS luge_shared luge_static EXPORT luge
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET luge_cuda)
  install(TARGETS luge_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
install(DIRECTORY include/luge DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" PATTERN "*.def")
install(FILES LICENSE README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})

install(EXPORT luge NAMESPACE luge:: FILE lugeTargets.cmake DESTINATION ${LUGE_CMAKE_DIR})
configure_package_config_file(cmake/lugeConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/lugeConfig.cmake
  INSTALL_DESTINATION ${LUGE_CMAKE_DIR})
# Before 1.0 every minor version may change the interface.
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/lugeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/lugeConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/lugeConfigVersion.cmake
  DESTINATION ${LUGE_CMAKE_DIR})

file(RELATIVE_PATH LUGE_PC_TO_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(luge.pc.in ${CMAKE_CURRENT_BINARY_DIR}/luge.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/luge.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
