/* Matrices, textures and surfaces: operands only; the work is in mma.h and texture.h. */
#include "ptx/memory.h"

const struct tow_ptx_special tow_ptx_specials_matrix[] = {{NULL, NULL}};
