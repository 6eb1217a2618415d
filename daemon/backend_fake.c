/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: every path behind a failing device must be walked by a test. Guarantees: exactly the n-th call from when it was
 * asked fails, once.
 */
#include "daemon/backend.h"

#include <assert.h>

static unsigned countdown, objects;
static int error_now;

void backend_fake_fail(unsigned nth, int error)
{
	countdown = nth;
	error_now = error;
}

unsigned backend_fake_objects(void)
{
	return objects;
}

static int call(void)
{
	if (countdown == 0 || --countdown > 0)
		return 0;
	return -error_now;
}

static int fake_open(struct device *device, struct device_attr *attr)
{
	int r = call();

	return r < 0 ? r : backend_soft.open(device, attr);
}

static void fake_close(struct device *device)
{
	backend_soft.close(device);
}

static int fake_object_new(struct device *device, struct object *object)
{
	int r = call();

	(void)device;
	(void)object;
	if (r == 0)
		objects++;
	return r;
}

static void fake_object_free(struct device *device, struct object *object)
{
	(void)device;
	(void)object;
	assert(objects > 0);
	objects--;
}

const struct backend backend_fake = {
	.name = "fake",
	.open = fake_open,
	.close = fake_close,
	.object_new = fake_object_new,
	.object_free = fake_object_free,
};
