/* Asynchronous copies and their barriers. Copies are done at once; what waits for them finds them
 * complete. */
#include "ptx/memory.h"

const struct tow_ptx_special tow_ptx_specials_async[] = {{NULL, NULL}};
