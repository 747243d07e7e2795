/* What `towline devices` shows of a backend's GPUs. */
#ifndef TOW_SERVER_DESCRIBE_H
#define TOW_SERVER_DESCRIBE_H

#include "backend/backend.h"
#include "base/buf.h"

/* Appends a JSON array with one object per GPU. */
int tow_describe_devices(const struct tow_backend *backend, struct tow_buf *out);

#endif
