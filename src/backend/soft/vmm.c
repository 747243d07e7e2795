/* Virtual memory management. */
#include "backend/soft/soft.h"

void tow_soft_memory_unref(struct tow_soft_memory *memory)
{
    (void)memory;
}

void tow_soft_vmm_fini(void)
{
}

void tow_soft_fill_vmm(struct tow_driver *driver)
{
    (void)driver;
}
