/* Arrays, textures, surfaces. */
#include "backend/soft/soft.h"

struct tow_soft_array *tow_soft_array_ref(struct tow_soft_array *array)
{
    return array;
}
void tow_soft_array_unref(struct tow_soft_array *array)
{
    (void)array;
}
void tow_soft_mipmap_unref(struct tow_soft_mipmap *mipmap)
{
    (void)mipmap;
}
const struct tow_ptx_texture *tow_soft_texture_get(uint64_t handle)
{
    (void)handle;
    return NULL;
}
void tow_soft_texture_destroy(struct tow_soft_object *object)
{
    (void)object;
}
void tow_soft_textures_fini(void)
{
}
void tow_soft_fill_texture(struct tow_driver *driver)
{
    (void)driver;
}
