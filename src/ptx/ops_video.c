/* The video instructions: scalar v*, packed v*2 and v*4. */
#include "ptx/lanes.h"

const struct tow_ptx_entry tow_ptx_ops_video[] = {{NULL, NULL, NULL}};
