/** @file luge.h
 *  Everything. A neural-network training framework in C: see README.md. */
#ifndef LUGE_LUGE_H
#define LUGE_LUGE_H

#include <luge/amp.h>
#include <luge/autograd.h>
#include <luge/base.h>
#include <luge/data.h>
#include <luge/nn.h>
#include <luge/ops.h>
#include <luge/optim.h>
#include <luge/process.h>
#include <luge/profile.h>
#include <luge/scope.h>
#include <luge/status.h>
#include <luge/tensor.h>
#include <luge/train.h>
/* Last: it gives names of the others to macros. */
#include <luge/lines.h>

#endif
