/* A module whose library is not where the loader looks, as cuDNN may be. */
extern const int luge_test_nothing;
extern const int *luge_test_something;
__attribute__((visibility("default"))) const int *luge_test_something = &luge_test_nothing;
