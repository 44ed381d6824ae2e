/* A text that grows. */
#include "nn/report.h"

#include <stdarg.h>
#include <stdio.h>

#include "core/alloc.h"
#include "core/thread.h"

void lg_report_add(lg_report *r, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length < 0) return;
    const size_t need = r->used + (size_t)length + 1;
    if (need > r->room) {
        char *bigger = lg_resize(r->text, 2 * need);
        if (bigger == NULL) return;
        r->text = bigger;
        r->room = 2 * need;
    }
    va_start(args, format);
    vsnprintf(r->text + r->used, r->room - r->used, format, args);
    va_end(args);
    r->used += (size_t)length;
}

const char *lg_report_end(lg_report *r)
{
    const char *text = r->text != NULL ? lg_borrow_owned_text(r->text) : "";
    *r = (lg_report){0};
    return text;
}
