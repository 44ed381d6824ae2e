/* What the emulator tells the sanitizers. It is compiled without them and says by hand what a GPU would do:
 * which CUDA thread or stream acts, what is ordered behind what, which memory may be touched. The build
 * defines LG_EMULATOR_ASAN or LG_EMULATOR_TSAN; without them all of this is nothing. */
#ifndef LG_EMULATOR_SANITIZERS_H
#define LG_EMULATOR_SANITIZERS_H

#include <stddef.h>

#ifdef LG_EMULATOR_ASAN
extern "C" {
void __sanitizer_start_switch_fiber(void **fake_stack, const void *bottom, size_t size);
void __sanitizer_finish_switch_fiber(void *fake_stack, const void **old_bottom, size_t *old_size);
void __asan_poison_memory_region(const volatile void *memory, size_t bytes);
void __asan_unpoison_memory_region(const volatile void *memory, size_t bytes);
}
#endif
#ifdef LG_EMULATOR_TSAN
extern "C" {
void *__tsan_get_current_fiber(void);
void *__tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void *fiber);
void __tsan_switch_to_fiber(void *fiber, unsigned flags);
void __tsan_acquire(void *object);
void __tsan_release(void *object);
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
}
#endif

namespace emulated {

#ifdef LG_EMULATOR_ASAN
constexpr bool with_asan = true;
inline void poison(const void *memory, size_t bytes) { __asan_poison_memory_region(memory, bytes); }
inline void unpoison(const void *memory, size_t bytes) { __asan_unpoison_memory_region(memory, bytes); }
#else
constexpr bool with_asan = false;
inline void poison(const void *, size_t) {}
inline void unpoison(const void *, size_t) {}
#endif

#ifdef LG_EMULATOR_TSAN
constexpr bool with_tsan = true;
/* What was done before a release of an object is ordered before what follows an acquire of it. */
inline void acquire(void *object) { __tsan_acquire(object); }
inline void release(void *object) { __tsan_release(object); }
inline void *current_context() { return __tsan_get_current_fiber(); }
inline void *new_context() { return __tsan_create_fiber(0); }
inline void end_context(void *context) { __tsan_destroy_fiber(context); }
/* Flag 1: the switch itself orders nothing. */
inline void enter_context(void *context) { __tsan_switch_to_fiber(context, 1); }
/* The emulator's own data is not the program's. */
inline void ignore_begin()
{
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}
inline void ignore_end()
{
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}
#else
constexpr bool with_tsan = false;
inline void acquire(void *) {}
inline void release(void *) {}
inline void *current_context() { return nullptr; }
inline void *new_context() { return nullptr; }
inline void end_context(void *) {}
inline void enter_context(void *) {}
inline void ignore_begin() {}
inline void ignore_end() {}
#endif

} // namespace emulated

#endif
