/* SPDX-License-Identifier: BSD-2-Clause */
#include "daemon/options.h"

#include <string.h>

#include "daemon/config.h"

void options_default(struct config *config)
{
	config->log_level = LOG_LEVEL_INFO;
	config->domain_share = 100;
	config->max_connections = 16384;
	config->cma = true;
	config->connect_any = true;
	config->n_devices = 1;
	config->devices[0] = (struct device_config){
		.name = "soft0",
		.guid = 0x0256534400000001ull,
		.gid_prefix = 0xfe80ull << 48,
		.lid = 1,
		.link_layer = LINK_INFINIBAND,
		.mtu = 4096,
		.active = true,
	};
}
