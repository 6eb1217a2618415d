/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Devices: the real library's and the daemon's in one list. A soft device keeps its address while any list or
 * context names it, as programs expect. Without a daemon the list is what the real library gives.
 */
#include "client/abi/abi.h"

#include <endian.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/native/native.h"

/*
 * A list that we gave out. The array is an allocation of its own, as rdma-core's is: programs (qperf) hand it to
 * free(), and their devices must stay good. Such a list stays here until its address comes up again.
 */
struct device_list {
	struct device_list *next;
	struct ibv_device **real, **array;
	size_t n_held;
	struct abi_device *held[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct abi_device *devices;
static struct device_list *lists;

/*
 * The real library has a lock over its list, which must not be held by another thread when the process forks: every soft
 * program would share it. Recursive: a signal handler that interrupts it may fork.
 */
static pthread_mutex_t real_lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

void abi_device_prepare(void)
{
	pthread_mutex_lock(&real_lock);
}

void abi_device_parent(void)
{
	pthread_mutex_unlock(&real_lock);
}

static struct ibv_device **real_list_get(int *n)
{
	real_deferred(); /* opens it, if nobody did: not under a lock */
	pthread_mutex_lock(&real_lock);

	struct ibv_device **list = REAL_PTR(ibv_get_device_list, "IBVERBS_1.1", n);

	pthread_mutex_unlock(&real_lock);
	return list;
}

static void real_list_free(struct ibv_device **list)
{
	pthread_mutex_lock(&real_lock);
	REAL_VOID(ibv_free_device_list, "IBVERBS_1.1", list);
	pthread_mutex_unlock(&real_lock);
}

/* Devices and lists stay a child's own: the program has pointers to them. */
void abi_device_in_child(void)
{
	pthread_mutex_init(&lock, NULL);
	real_lock = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
}

static _Atomic int real_devices = -1; /* that the real library listed; -1: it was not asked yet */

bool abi_real_devices(void)
{
	if (real_devices < 0) {
		int n = 0;
		struct ibv_device **real = real_list_get(&n);

		real_devices = n;
		if (real)
			real_list_free(real);
	}
	return real_devices > 0;
}

static void lock_take(void)
{
	abi_enter();
	pthread_mutex_lock(&lock);
}

static struct abi_device *device_find(const struct ibv_device *dev)
{
	for (struct abi_device *d = devices; d; d = d->next)
		if (&d->dev == dev)
			return d;
	return NULL;
}

struct abi_device *abi_device_ref(const struct ibv_device *dev)
{
	lock_take();

	struct abi_device *device = device_find(dev);

	if (device)
		device->refs++;
	pthread_mutex_unlock(&lock);
	return device;
}

struct abi_device *abi_device_by_path(const char *path)
{
	struct abi_device *device;

	lock_take();
	for (device = devices; device; device = device->next)
		if (strcmp(device->dev.ibdev_path, path) == 0) {
			device->refs++;
			break;
		}
	pthread_mutex_unlock(&lock);
	return device;
}

static void device_unref_locked(struct abi_device *device)
{
	if (--device->refs)
		return;

	struct abi_device **p = &devices;

	while (*p != device)
		p = &(*p)->next;
	*p = device->next;
	vsd__device__free_unpacked(device->info, NULL);
	free(device);
}

void abi_device_unref(struct abi_device *device)
{
	lock_take();
	device_unref_locked(device);
	pthread_mutex_unlock(&lock);
}

static void text_copy(char *dst, size_t size, const char *prefix, const char *text)
{
	snprintf(dst, size, "%s%s", prefix, text);
}

/* The device of that name, new or known; takes *@info over. With a reference, NULL: no memory. */
static struct abi_device *device_get(Vsd__Device **info)
{
	for (struct abi_device *d = devices; d; d = d->next)
		if (strcmp(d->info->name, (*info)->name) == 0) {
			d->refs++;
			return d;
		}

	struct abi_device *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	d->info = *info;
	*info = NULL;
	d->refs = 1;
	d->dev.node_type = (enum ibv_node_type)d->info->node_type;
	d->dev.transport_type = (enum ibv_transport_type)d->info->transport;
	text_copy(d->dev.name, sizeof(d->dev.name), "", d->info->name);
	text_copy(d->dev.dev_name, sizeof(d->dev.dev_name), "", d->info->name);
	text_copy(d->dev.dev_path, sizeof(d->dev.dev_path), "/sys/class/infiniband_verbs/",
		d->info->name);
	text_copy(d->dev.ibdev_path, sizeof(d->dev.ibdev_path), "/sys/class/infiniband/",
		d->info->name);
	d->next = devices;
	devices = d;
	return d;
}

static Vsd__Device *info_copy(const Vsd__Device *info)
{
	size_t n = vsd__device__get_packed_size(info);
	uint8_t *packed = malloc(n);
	Vsd__Device *copy = NULL;

	if (packed && vsd__device__pack(info, packed) == n)
		copy = vsd__device__unpack(NULL, n, packed);
	free(packed);
	return copy;
}

struct abi_device *abi_device_known(const Vsd__Device *info)
{
	Vsd__Device *copy = info_copy(info);
	struct abi_device *device = NULL;

	pthread_mutex_lock(&lock);
	if (copy)
		device = device_get(&copy);
	pthread_mutex_unlock(&lock);
	if (copy)
		vsd__device__free_unpacked(copy, NULL);
	return device;
}

/* Asks the daemon. NULL with *@error: there is none, or it refused. */
static Vsd__DeviceListReply *soft_list(int *error)
{
	ProtobufCMessage *reply = NULL;

	*error = control_call(VSD__OP__OP_DEVICE_LIST, NULL, &vsd__device_list_reply__descriptor,
		&reply, NULL);
	return *error < 0 ? NULL : (Vsd__DeviceListReply *)reply;
}

static size_t real_count(struct ibv_device **real)
{
	size_t n = 0;

	while (real && real[n])
		n++;
	return n;
}

/* Under the lock. */
static struct device_list *list_take_locked(struct ibv_device **array)
{
	struct device_list **p = &lists;

	while (*p && (*p)->array != array)
		p = &(*p)->next;

	struct device_list *list = *p;

	if (!list)
		return NULL;
	*p = list->next;
	for (size_t i = 0; i < list->n_held; i++)
		device_unref_locked(list->held[i]);
	return list;
}

static struct device_list *list_take(struct ibv_device **array)
{
	lock_take();

	struct device_list *list = list_take_locked(array);

	pthread_mutex_unlock(&lock);
	return list;
}

static struct device_list *list_new(size_t n_real, size_t n_soft)
{
	struct device_list *list = calloc(1, sizeof(*list) + n_soft * sizeof(list->held[0]));

	if (!list)
		return NULL;
	list->array = calloc(n_real + n_soft + 1, sizeof(list->array[0]));
	if (!list->array) {
		free(list);
		return NULL;
	}
	return list;
}

/*
 * Real devices first: a program that takes the first device takes what it took before verbsd. But for those that the
 * program can have neither by itself nor from the daemon.
 */
static struct device_list *list_make(struct ibv_device **real, Vsd__DeviceListReply *soft, int *num)
{
	size_t n_real = real_count(real), n_soft = soft ? soft->n_devices : 0, n = 0;
	struct device_list *list = list_new(n_real, n_soft), *stale;

	if (!list)
		return NULL;
	list->real = real;
	for (size_t i = 0; i < n_real; i++)
		if (!soft || !native_denied(real[i]->dev_name))
			list->array[n++] = real[i];
	lock_take();
	stale = list_take_locked(list->array);
	for (size_t i = 0; i < n_soft; i++) {
		struct abi_device *d =
			soft->devices[i]->soft ? device_get(&soft->devices[i]) : NULL;

		if (d) {
			list->held[list->n_held++] = d;
			list->array[n++] = &d->dev;
		}
	}
	list->next = lists;
	lists = list;
	pthread_mutex_unlock(&lock);
	if (stale && stale->real)
		real_list_free(stale->real);
	free(stale);
	if (num)
		*num = (int)n;
	return list;
}

VERBS_API struct ibv_device **ibv_get_device_list(int *num)
{
	if (real_deferred())
		return real_list_get(num);
	if (process_borrowed())
		return abi_null(ABI_CHILD_ERRNO);
	if (!real_inside())
		abi_first_use();

	int n = 0;
	struct ibv_device **real = real_list_get(&n);

	if (real_inside()) {
		if (num)
			*num = n;
		return real;
	}

	int real_error = errno, error;

	if (n > 0 || real_devices < 0)
		real_devices = n;

	Vsd__DeviceListReply *soft = soft_list(&error);

	if (!soft && !(real && n > 0))
		control_tell("no soft devices: %s: %s", control_path(), strerror(-error));
	if (!soft && !real) {
		if (num)
			*num = 0;
		return abi_null(real_error == EOPNOTSUPP ? ENOSYS : real_error);
	}

	struct device_list *list = list_make(real, soft, num);

	if (soft)
		vsd__device_list_reply__free_unpacked(soft, NULL);
	if (!list) {
		real_list_free(real);
		return abi_null(ENOMEM);
	}
	return list->array;
}

VERBS_API void ibv_free_device_list(struct ibv_device **array)
{
	if (process_borrowed())
		return;

	struct device_list *list = array && !real_inside() ? list_take(array) : NULL;

	if (!list) {
		real_list_free(array);
		return;
	}
	if (list->real)
		real_list_free(list->real);
	free(list->array);
	free(list);
}

static bool device_ours(const struct ibv_device *dev)
{
	lock_take();

	bool ours = device_find(dev) != NULL;

	pthread_mutex_unlock(&lock);
	return ours;
}

VERBS_API const char *ibv_get_device_name(struct ibv_device *dev)
{
	return dev->name;
}

VERBS_API int ibv_get_device_index(struct ibv_device *dev)
{
	if (!device_ours(dev))
		return REAL_INT(-1, ibv_get_device_index, "IBVERBS_1.9", dev);

	struct abi_device *device = soft_container(dev, struct abi_device, dev);

	return (int)device->info->index;
}

VERBS_API __be64 ibv_get_device_guid(struct ibv_device *dev)
{
	if (!device_ours(dev))
		return REAL_INT(0, ibv_get_device_guid, "IBVERBS_1.1", dev);

	struct abi_device *device = soft_container(dev, struct abi_device, dev);

	return htobe64(device->info->guid);
}
