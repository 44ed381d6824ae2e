/* Scopes, modes and ownership: include/luge/scope.h, and what core/thread.h adds for the library. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <luge/luge.h>
#include <pthread.h>
#include <string.h>

#include "core/alloc.h"
#include "core/fault.h"
#include "core/memory.h"
#include "core/tensor.h"
#include "core/thread.h"

static luge_live_counts baseline;

static int begin(void **state)
{
    (void)state;
    baseline = luge_live();
    return 0;
}

/* Every test gives back what it took and leaves no error. */
static int end(void **state)
{
    (void)state;
    lg_fault_set(LG_FAULT_HOST, 0);
    luge_error_clear();
    luge_live_counts now = luge_live();
    assert_int_equal(now.tensors, baseline.tensors);
    assert_int_equal(now.storages, baseline.storages);
    assert_int_equal(now.host_bytes, baseline.host_bytes);
    assert_int_equal(lg_self()->n_frames, 0);
    assert_int_equal(lg_self()->n_kept, 0);
    return 0;
}

static int64_t alive(void)
{
    return luge_live().tensors - baseline.tensors;
}

/* A tensor with one reference that the caller owns. */
static luge_tensor *owned(void)
{
    luge_shape shape = LUGE_SHAPE(2);
    luge_tensor *t = lg_tensor_create(lg_device_get((luge_device){0}), LUGE_F32, &shape, NULL);
    assert_non_null(t);
    return t;
}

static luge_tensor *borrowed(void)
{
    return lg_borrow(owned());
}

/* ---- lifetimes */

static void tensors_end_with_their_scope(void **state)
{
    (void)state;
    {
        LUGE_SCOPE("outer");
        luge_tensor *a = borrowed();
        {
            LUGE_SCOPE("inner");
            borrowed();
            borrowed();
            assert_int_equal(alive(), 3);
        }
        assert_int_equal(alive(), 1);
        assert_int_equal(luge_tensor_numel(a), 2);
    }
    assert_int_equal(alive(), 0);
}

static void exit_closes_what_was_opened_since(void **state)
{
    (void)state;
    luge_scope outer = luge_scope_enter("outer");
    borrowed();
    luge_scope_enter("middle");
    luge_autocast_enter(LUGE_BF16);
    borrowed();
    luge_scope inner = luge_scope_enter("inner");
    borrowed();
    assert_int_equal(luge_scope_exit(outer, NULL), LUGE_OK);
    assert_int_equal(alive(), 0);
    assert_int_equal(lg_self()->n_frames, 0);
    assert_int_equal(lg_self()->modes.low, LUGE_F32);
    assert_int_equal(luge_scope_exit(inner, NULL), LUGE_OK); /* long closed */
}

static void unknown_and_closed_ids_are_ignored(void **state)
{
    (void)state;
    luge_scope a = luge_scope_enter("a");
    luge_scope b = luge_scope_enter("b");
    luge_scope_exit(b, NULL);
    luge_scope c = luge_scope_enter("c");
    borrowed();
    const luge_scope ids[] = {b, {0}, {c.id + 1}, {UINT64_MAX}};
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; ++i) {
        assert_int_equal(luge_scope_exit(ids[i], NULL), LUGE_OK);
        assert_int_equal(lg_self()->n_frames, 2);
        assert_int_equal(alive(), 1);
    }
    luge_scope_exit(a, NULL);
}

static void ids_are_never_used_again(void **state)
{
    (void)state;
    uint64_t last = 0;
    for (int i = 0; i < 100; ++i) {
        luge_scope s = i % 2 ? luge_scope_enter("s") : luge_no_grad_enter();
        assert_true(s.id > last);
        last = s.id;
        luge_scope_exit(s, NULL);
    }
}

static void exit_keeps_one_for_the_parent(void **state)
{
    (void)state;
    luge_scope outer = luge_scope_enter("outer");
    luge_scope inner = luge_scope_enter("inner");
    borrowed();
    luge_tensor *kept = borrowed();
    borrowed();
    assert_int_equal(luge_scope_exit(inner, kept), LUGE_OK);
    assert_int_equal(alive(), 1);
    assert_int_equal(luge_tensor_numel(kept), 2);
    luge_scope_exit(outer, NULL);
    assert_int_equal(alive(), 0);
}

/* The parent of the scope that is named, not of the innermost one. */
static void exit_keeps_over_several_scopes(void **state)
{
    (void)state;
    luge_scope outer = luge_scope_enter("outer");
    luge_scope middle = luge_scope_enter("middle");
    luge_scope_enter("inner");
    luge_tensor *kept = borrowed();
    luge_scope_exit(middle, kept);
    assert_int_equal(alive(), 1);
    assert_int_equal(luge_tensor_numel(kept), 2);
    luge_scope_exit(outer, NULL);
    assert_int_equal(alive(), 0);
}

static luge_tensor *make_kept(void)
{
    LUGE_SCOPE("cell");
    borrowed();
    return luge_keep(borrowed());
}

static luge_tensor *make_kept_in_a_mode(void)
{
    LUGE_SCOPE("cell");
    LUGE_NO_GRAD();
    LUGE_AUTOCAST(LUGE_F16);
    return luge_keep(borrowed());
}

static void keep_moves_to_the_parent(void **state)
{
    (void)state;
    {
        LUGE_SCOPE("step");
        luge_tensor *a = make_kept();
        luge_tensor *b = make_kept_in_a_mode();
        assert_int_equal(alive(), 2);
        assert_int_equal(luge_tensor_numel(a) + luge_tensor_numel(b), 4);
        {
            LUGE_SCOPE("inner");
            luge_tensor *c = make_kept();
            luge_keep(c);
            luge_keep(c); /* twice is as once */
        }
        assert_int_equal(alive(), 3);
    }
    assert_int_equal(alive(), 0);
}

static void keep_in_the_parents_mode(void **state)
{
    (void)state;
    LUGE_SCOPE("step");
    {
        LUGE_NO_GRAD(); /* between the scope and its parent */
        make_kept();
    }
    assert_int_equal(alive(), 1);
}

/* More kept than the scope ever owned: the parent's room was made when they were kept. */
static void keep_many_of_somebody_elses(void **state)
{
    (void)state;
    luge_tensor *t = owned();
    luge_scope outer = luge_scope_enter("outer");
    for (int level = 0; level < 3; ++level) {
        luge_scope inner = luge_scope_enter("inner");
        for (int i = 0; i < 1000; ++i) assert_ptr_equal(luge_keep(t), t);
        lg_fault_set(LG_FAULT_HOST, 1);
        assert_int_equal(luge_scope_exit(inner, NULL), LUGE_OK);
        assert_false(lg_fault_hit(LG_FAULT_HOST));
        lg_fault_set(LG_FAULT_HOST, 0);
    }
    assert_int_equal(atomic_load(&t->refs), 3001);
    luge_scope_exit(outer, NULL);
    assert_int_equal(atomic_load(&t->refs), 1);
    luge_release(t);
}

static void keep_of_nothing(void **state)
{
    (void)state;
    assert_null(luge_keep(NULL));
    assert_int_equal(luge_error(), LUGE_ERR_ARGUMENT);
    luge_error_clear();
    luge_fail(LUGE_ERR_IO, "stands");
    assert_null(luge_keep(NULL));
    assert_int_equal(luge_error(), LUGE_ERR_IO);
    luge_error_clear();
    LUGE_SCOPE("s");
    assert_ptr_equal(luge_keep(LUGE_NONE), LUGE_NONE);
    assert_true(luge_ok());
}

static void lending_adds_a_reference(void **state)
{
    (void)state;
    luge_tensor *t = owned();
    {
        LUGE_SCOPE("s");
        assert_ptr_equal(lg_lend(t), t);
        assert_int_equal(atomic_load(&t->refs), 2);
        assert_null(lg_lend(NULL));
        assert_null(lg_borrow(NULL));
        assert_ptr_equal(lg_lend(LUGE_NONE), LUGE_NONE);
        assert_ptr_equal(lg_borrow(LUGE_NONE), LUGE_NONE);
    }
    assert_int_equal(atomic_load(&t->refs), 1);
    luge_release(t);
    assert_true(luge_ok());
}

static void retain_release_assign(void **state)
{
    (void)state;
    assert_null(luge_retain(NULL));
    assert_ptr_equal(luge_retain(LUGE_NONE), LUGE_NONE);
    luge_release(NULL);
    luge_release(LUGE_NONE);

    luge_tensor *slot = NULL;
    {
        LUGE_SCOPE("s");
        luge_assign(&slot, borrowed());
        luge_assign(&slot, borrowed());
        luge_assign(&slot, slot); /* itself */
    }
    assert_int_equal(alive(), 1);
    assert_int_equal(atomic_load(&slot->refs), 1);

    luge_tensor *before = slot;
    luge_fail(LUGE_ERR_IO, "stands");
    {
        LUGE_SCOPE("s");
        luge_assign(&slot, borrowed());
    }
    assert_ptr_equal(slot, before);
    luge_error_clear();
    luge_assign(&slot, NULL);
    assert_ptr_equal(slot, before);
    assert_int_equal(luge_error(), LUGE_ERR_ARGUMENT);
    luge_error_clear();
    luge_assign(NULL, before);
    assert_int_equal(luge_error(), LUGE_ERR_ARGUMENT);
    luge_error_clear();

    luge_assign(&slot, LUGE_NONE);
    assert_true(luge_is_none(slot));
    assert_int_equal(alive(), 0);
}

static void everything_but_making_works_while_an_error_stands(void **state)
{
    (void)state;
    luge_fail(LUGE_ERR_STATE, "stands");
    luge_scope outer = luge_scope_enter("outer");
    luge_scope s = luge_scope_enter("s");
    assert_true(s.id > outer.id);
    luge_tensor *t = luge_keep(borrowed());
    assert_non_null(t);
    assert_int_equal(luge_scope_exit(s, NULL), LUGE_ERR_STATE); /* closed; the error goes on standing */
    assert_int_equal(alive(), 1);
    luge_scope_exit(outer, NULL);
    assert_int_equal(alive(), 0);
    assert_string_equal(luge_error_text(), "stands");
}

static void *use_the_root_scope(void *arg)
{
    luge_tensor *mine = borrowed();
    *(int64_t *)arg = luge_tensor_numel(mine);
    lg_borrow_text("%d", 5);
    luge_keep(mine);
    luge_scope mode = luge_no_grad_enter(); /* owns nothing: still the thread */
    luge_keep(borrowed());
    luge_scope_exit(mode, NULL);
    luge_scope_enter("left open");
    borrowed();
    luge_no_grad_enter();
    luge_keep(borrowed());
    return NULL;
}

static void threads_own_what_no_scope_does(void **state)
{
    (void)state;
    int64_t numel = 0;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, use_the_root_scope, &numel), 0);
    pthread_join(thread, NULL);
    assert_int_equal(numel, 2);
    assert_int_equal(alive(), 0);
    assert_int_equal(luge_live().host_bytes, baseline.host_bytes);
}

/* ---- modes */

static void modes_nest_and_are_restored(void **state)
{
    (void)state;
    const lg_modes *now = &lg_self()->modes;
    assert_true(!now->no_grad && !now->anomaly && now->low == LUGE_F32);
    {
        LUGE_NO_GRAD();
        assert_true(now->no_grad);
        LUGE_AUTOCAST(LUGE_F16);
        assert_true(now->no_grad && now->low == LUGE_F16);
        {
            LUGE_AUTOCAST(LUGE_F32);
            LUGE_ANOMALY();
            assert_true(now->no_grad && now->anomaly && now->low == LUGE_F32);
        }
        assert_true(now->no_grad && !now->anomaly && now->low == LUGE_F16);
        luge_scope s = luge_scope_enter("s");
        luge_autocast_enter(LUGE_BF16);
        luge_scope_exit(s, NULL);
        assert_int_equal(now->low, LUGE_F16);
    }
    assert_true(!now->no_grad && !now->anomaly && now->low == LUGE_F32);
}

static luge_status leave_by_an_error(void)
{
    LUGE_AUTOCAST(LUGE_F32);
    LUGE_NO_GRAD();
    return luge_fail(LUGE_ERR_SHAPE, "in the inner region");
}

static void amp_04_restored_after_an_error_return(void **state)
{
    (void)state;
    LUGE_AUTOCAST(LUGE_F16);
    assert_int_equal(leave_by_an_error(), LUGE_ERR_SHAPE);
    assert_int_equal(lg_self()->modes.low, LUGE_F16);
    assert_false(lg_self()->modes.no_grad);
}

static void *read_modes(void *arg)
{
    *(lg_modes *)arg = lg_self()->modes;
    return NULL;
}

static void amp_07_modes_are_per_thread(void **state)
{
    (void)state;
    LUGE_AUTOCAST(LUGE_BF16);
    LUGE_NO_GRAD();
    lg_modes other = {.no_grad = true, .anomaly = true, .low = LUGE_F16};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, read_modes, &other), 0);
    pthread_join(thread, NULL);
    assert_true(!other.no_grad && !other.anomaly && other.low == LUGE_F32);
}

static void autocast_refuses_other_dtypes(void **state)
{
    (void)state;
    const luge_dtype wrong[] = {LUGE_F64, LUGE_I64, LUGE_I32, LUGE_U8, LUGE_BOOL, (luge_dtype)99, (luge_dtype)-1};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; ++i) {
        luge_scope s = luge_autocast_enter(wrong[i]);
        assert_int_equal(s.id, 0);
        assert_int_equal(luge_error(), LUGE_ERR_DTYPE);
        assert_non_null(strstr(luge_error_text(), luge_dtype_name(wrong[i])));
        assert_int_equal(lg_self()->n_frames, 0);
        luge_error_clear();
    }
}

static void count_call(void *data)
{
    ++*(int *)data;
}

static void modes_close_once(void **state)
{
    (void)state;
    int closed = 0;
    luge_scope outer = luge_scope_enter("outer");
    luge_scope mode = lg_mode_enter(lg_self()->modes, count_call, &closed);
    luge_scope_enter("inner");
    assert_int_equal(closed, 0);
    luge_scope_exit(mode, NULL);
    assert_int_equal(closed, 1);
    luge_scope_exit(mode, NULL);
    assert_int_equal(closed, 1);
    lg_mode_enter(lg_self()->modes, count_call, &closed);
    luge_scope_exit(outer, NULL);
    assert_int_equal(closed, 2);
}

/* What closes may itself open, borrow and close. */
static void open_and_close(void *data)
{
    LUGE_SCOPE("closing");
    borrowed();
    count_call(data);
}

static void closing_may_use_scopes(void **state)
{
    (void)state;
    int closed = 0;
    luge_scope outer = luge_scope_enter("outer");
    borrowed();
    lg_mode_enter(lg_self()->modes, open_and_close, &closed);
    borrowed();
    luge_scope_exit(outer, NULL);
    assert_int_equal(closed, 1);
    assert_int_equal(alive(), 0);
}

/* ---- names */

static const char *path(void)
{
    static char buffer[128];
    return lg_scope_path(buffer, sizeof buffer);
}

static void names_make_the_path(void **state)
{
    (void)state;
    assert_string_equal(path(), "");
    LUGE_SCOPE("step");
    assert_string_equal(path(), "step");
    LUGE_NO_GRAD();
    LUGE_SCOPE("");
    LUGE_SCOPE(NULL);
    assert_string_equal(path(), "step");
    LUGE_SCOPE("net");
    assert_string_equal(path(), "step.net");
}

static void names_are_copied_and_cut(void **state)
{
    (void)state;
    {
        char name[] = "mine";
        LUGE_SCOPE(name);
        name[0] = 'x';
        assert_string_equal(path(), "mine");
    }
    {
        LUGE_SCOPE("1234567890123456789012345678901234567890");
        assert_string_equal(path(), "1234567890123456789012345678901");
    }
    {
        LUGE_SCOPE("123456789012345678901234567890\xc3\xa9"); /* its last character would be cut in half */
        assert_string_equal(path(), "123456789012345678901234567890");
    }
    {
        LUGE_SCOPE("12345678901234567890123456789\xc3\xa9");
        assert_string_equal(path(), "12345678901234567890123456789\xc3\xa9");
    }
}

static void long_paths_keep_the_innermost_names(void **state)
{
    (void)state;
    LUGE_SCOPE("first");
    LUGE_SCOPE("second");
    LUGE_SCOPE("third");
    char buffer[64];
    assert_string_equal(lg_scope_path(buffer, 64), "first.second.third");
    assert_string_equal(lg_scope_path(buffer, 19 + 4), "first.second.third");
    assert_string_equal(lg_scope_path(buffer, 18 + 4), "...second.third");
    assert_string_equal(lg_scope_path(buffer, 10), "...third");
    assert_string_equal(lg_scope_path(buffer, 6), "...");
    assert_string_equal(lg_scope_path(buffer, 4), "");
    assert_string_equal(lg_scope_path(buffer, 1), "");
}

/* ---- text */

static void text_lives_as_long_as_its_scope(void **state)
{
    (void)state;
    int64_t before = luge_live().host_bytes;
    {
        LUGE_SCOPE("s");
        const char *a = lg_borrow_text("%d of %s", 3, "four");
        char *mine = lg_copy_text("handed over");
        const char *b = lg_borrow_owned_text(mine);
        assert_string_equal(a, "3 of four");
        assert_ptr_equal(b, mine);
        assert_true(luge_live().host_bytes > before);
    }
    assert_int_equal(luge_live().host_bytes, before);
}

/* ---- failing allocations */

/* Takes whatever a thread's stacks can take; returns whether all went well. */
static bool use_everything(int *modes_closed, int *modes_opened)
{
    luge_scope outer = luge_scope_enter("outer");
    for (int i = 0; i < 40; ++i) {
        luge_scope s = luge_scope_enter("inner");
        lg_mode_enter(lg_self()->modes, count_call, modes_closed);
        ++*modes_opened;
        for (int k = 0; k < 3; ++k) {
            luge_shape shape = LUGE_SHAPE(2);
            luge_tensor *t = lg_borrow(lg_tensor_create(lg_device_get((luge_device){0}), LUGE_F32, &shape, NULL));
            if (t != NULL) luge_keep(t);
            assert_non_null(lg_borrow_text("%d", k));
        }
        if (i % 2) luge_scope_exit(s, NULL);
    }
    bool ok = luge_ok();
    luge_scope_exit(outer, NULL);
    if (outer.id == 0) lg_scope_close_all(lg_self());
    return ok;
}

static void *fail_each_allocation(void *arg)
{
    borrowed();
    lg_scope_close_all(lg_self());
    int64_t failed = 0;
    for (int64_t n = 1;; ++n) {
        luge_live_counts before = luge_live();
        int closed = 0, opened = 0;
        lg_fault_set(LG_FAULT_HOST, n);
        bool ok = use_everything(&closed, &opened);
        bool hit = lg_fault_hit(LG_FAULT_HOST);
        lg_fault_set(LG_FAULT_HOST, 0);
        if (ok == hit) return arg; /* stays unset */
        if (hit && luge_error() != LUGE_ERR_OUT_OF_MEMORY) return arg;
        luge_error_clear();
        lg_scope_close_all(lg_self()); /* so that the next round has to grow again */
        luge_live_counts after = luge_live();
        if (closed != opened || after.tensors != before.tensors || after.host_bytes != before.host_bytes) return arg;
        if (!hit) break;
        ++failed;
    }
    *(int64_t *)arg = failed;
    return NULL;
}

static void failing_allocations_are_errors_and_leak_nothing(void **state)
{
    (void)state;
    int64_t failed = 0;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, fail_each_allocation, &failed), 0);
    pthread_join(thread, NULL);
    assert_true(failed > 200); /* each tensor, each text, and every growth */
    assert_int_equal(alive(), 0);
}

static void *fail_to_open(void *arg)
{
    lg_thread *self = lg_self();
    int *closed = arg;
    lg_fault_set(LG_FAULT_HOST, 1);
    luge_scope s = luge_scope_enter("s");
    bool good = s.id == 0 && luge_error() == LUGE_ERR_OUT_OF_MEMORY && self->n_frames == 0;
    luge_error_clear();
    luge_scope_exit(s, NULL);
    lg_fault_set(LG_FAULT_HOST, 1);
    s = lg_mode_enter((lg_modes){.no_grad = true}, count_call, closed);
    good = good && s.id == 0 && !self->modes.no_grad && *closed == 1 && luge_error() == LUGE_ERR_OUT_OF_MEMORY;
    luge_scope_exit(s, NULL);
    lg_fault_set(LG_FAULT_HOST, 1);
    good = good && luge_scope_enter("while an error stands").id == 0;
    lg_fault_set(LG_FAULT_HOST, 0);
    return good && *closed == 1 ? arg : NULL;
}

static void scopes_that_cannot_open_have_no_id(void **state)
{
    (void)state;
    int closed = 0;
    void *result = NULL;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, fail_to_open, &closed), 0);
    pthread_join(thread, &result);
    assert_ptr_equal(result, &closed);
}

static void deep_stacks_grow(void **state)
{
    (void)state;
    luge_scope outer = luge_scope_enter("outer");
    for (int i = 0; i < 100000; ++i) {
        luge_scope_enter("deep");
        if (i % 100 == 0) borrowed();
    }
    assert_int_equal(alive(), 1000);
    luge_scope_exit(outer, NULL);
    assert_int_equal(alive(), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(tensors_end_with_their_scope),
        TEST(exit_closes_what_was_opened_since),
        TEST(unknown_and_closed_ids_are_ignored),
        TEST(ids_are_never_used_again),
        TEST(exit_keeps_one_for_the_parent),
        TEST(exit_keeps_over_several_scopes),
        TEST(keep_moves_to_the_parent),
        TEST(keep_in_the_parents_mode),
        TEST(keep_many_of_somebody_elses),
        TEST(keep_of_nothing),
        TEST(lending_adds_a_reference),
        TEST(retain_release_assign),
        TEST(everything_but_making_works_while_an_error_stands),
        TEST(threads_own_what_no_scope_does),
        TEST(modes_nest_and_are_restored),
        TEST(amp_04_restored_after_an_error_return),
        TEST(amp_07_modes_are_per_thread),
        TEST(autocast_refuses_other_dtypes),
        TEST(modes_close_once),
        TEST(closing_may_use_scopes),
        TEST(names_make_the_path),
        TEST(names_are_copied_and_cut),
        TEST(long_paths_keep_the_innermost_names),
        TEST(text_lives_as_long_as_its_scope),
        TEST(failing_allocations_are_errors_and_leak_nothing),
        TEST(scopes_that_cannot_open_have_no_id),
        TEST(deep_stacks_grow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
