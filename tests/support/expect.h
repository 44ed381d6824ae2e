/* What tests expect of errors and numbers. */
#ifndef LG_TESTS_EXPECT_H
#define LG_TESTS_EXPECT_H

#include <luge/luge.h>

/* Fails the test unless this error stands and its text contains `says`; clears it. */
void expect_error(luge_status code, const char *says);
/* Fails the test unless |is - should| <= bound; NaN fails. */
void assert_near(double is, double should, double bound);
/* A clock, in seconds. */
double seconds(void);

#endif
