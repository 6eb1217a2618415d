/* SPDX-License-Identifier: BSD-2-Clause */
/* Uses a real device (forward_real.c) and a soft one side by side: each object answers for its own. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#define REAL 0x5ea1

static int n;

#define CHECK(name, condition) printf("%sok %d - %s\n", (condition) ? "" : "not ", ++n, name)

static char buffer[4096];

static void use(struct ibv_context *context, int real)
{
	struct ibv_port_attr port = { .lid = 0 };
	union ibv_gid gid;
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_mr *mr = pd ? ibv_reg_mr(pd, buffer, sizeof(buffer), IBV_ACCESS_LOCAL_WRITE) : NULL;

	CHECK(real ? "real PD" : "soft PD", pd && (pd->handle == REAL) == real);
	CHECK(real ? "real MR" : "soft MR", mr && (mr->lkey == REAL) == real);
	CHECK(real ? "real port" : "soft port",
		ibv_query_port(context, 1, &port) == 0 && (port.lid == REAL) == real);
	CHECK(real ? "real GID" : "soft GID",
		ibv_query_gid(context, 1, 0, &gid) == 0 && (gid.raw[0] == 0x55) == real);
	CHECK(real ? "real port 2 is refused" : "soft port 2 is refused",
		ibv_query_port(context, 2, &port) == EINVAL);
	CHECK(real ? "real MR deregistered" : "soft MR deregistered", mr && ibv_dereg_mr(mr) == 0);
	CHECK(real ? "real PD deallocated" : "soft PD deallocated", pd && ibv_dealloc_pd(pd) == 0);
}

int main(void)
{
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	struct ibv_context *real, *soft;

	CHECK("both are listed, the real one first",
		count == 2 && strcmp(ibv_get_device_name(list[0]), "fake0") == 0 && !list[2]);
	if (count != 2)
		return 1;
	CHECK("the real index", ibv_get_device_index(list[0]) == 77);
	CHECK("the real GUID", be64toh(ibv_get_device_guid(list[0])) == 0xfa4e);
	CHECK("the soft GUID", ibv_get_device_guid(list[1]) != ibv_get_device_guid(list[0]));
	real = ibv_open_device(list[0]);
	soft = ibv_open_device(list[1]);
	ibv_free_device_list(list);
	CHECK("the real device is open", real != NULL);
	CHECK("the soft device is open", soft != NULL);
	if (!real || !soft)
		return 1;
	use(real, 1);
	use(soft, 0);
	errno = 0;
	CHECK("what the real library lacks is refused",
		!ibv_create_comp_channel(real) && errno == EOPNOTSUPP);
	CHECK("text is the real library's", strcmp(ibv_wc_status_str(0), "the real words") == 0);
	CHECK("the real device is closed", ibv_close_device(real) == 0);
	CHECK("the soft device is closed", ibv_close_device(soft) == 0);
	printf("1..%d\n", n);
	return 0;
}
