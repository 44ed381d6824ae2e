/* A shared object with nothing in it that anybody looks for. */
extern const int luge_test_nothing;
__attribute__((visibility("default"))) const int luge_test_nothing = 1;
