/* The scaler from inside: what accumulation windows share with it. */
#ifndef LG_AMP_SCALER_H
#define LG_AMP_SCALER_H

#include <luge/amp.h>

luge_scaler *lg_scaler_retain(luge_scaler *s);
void lg_scaler_release(luge_scaler *s);

/* luge_scaler_unscale, also times numerator. */
luge_status lg_scaler_unscale(luge_scaler *s, luge_optim *o, double numerator, const char *what);

#endif
