/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The configuration: every refusal with its line, and that a good file means what it says.
 */
#include "daemon/config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/options.h"
#include "tests/lib/harness.h"
#include "tests/unit/daemon_fixture.h"

static char dir[] = "/tmp/verbsd-config-XXXXXX";
static const size_t dir_pattern = sizeof(dir) - sizeof("XXXXXX");
static char main_file[64], drop_ins[64], drop_in_a[96], drop_in_b[96], error[512];
static struct config *config;

static void setup(void)
{
	strcpy(dir + dir_pattern, "XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(main_file, sizeof(main_file), "%s/verbsd.conf", dir);
	snprintf(drop_ins, sizeof(drop_ins), "%s/conf.d", dir);
	ck_assert_int_eq(mkdir(drop_ins, 0700), 0);
	snprintf(drop_in_a, sizeof(drop_in_a), "%s/a.conf", drop_ins);
	snprintf(drop_in_b, sizeof(drop_in_b), "%s/b.conf", drop_ins);
}

static void teardown(void)
{
	config = config_free(config);
	unlink(drop_in_a);
	unlink(drop_in_b);
	unlink(main_file);
	rmdir(drop_ins);
	ck_assert_int_eq(rmdir(dir), 0);
}

static void write_file(const char *path, const char *text, size_t n)
{
	FILE *file = fopen(path, "we");

	ck_assert_ptr_nonnull(file);
	ck_assert_uint_eq(fwrite(text, 1, n, file), n);
	ck_assert_int_eq(fclose(file), 0);
}

static void write_text(const char *path, const char *text)
{
	write_file(path, text, strlen(text));
}

static int read_text(const char *text)
{
	write_text(main_file, text);
	return config_read(main_file, false, &config, error, sizeof(error));
}

static const struct {
	const char *text;
	unsigned line;
	const char *why; /* is in the reason */
} refusals[] = {
	{ "cma = on\n", 1, "before the first section" },
	{ "[daemon\n", 1, "section" },
	{ "[daemon] x\n", 1, "section" },
	{ "\n\n[demon]\n", 3, "no section 'demon'" },
	{ "[daemon x]\n", 1, "takes no name" },
	{ "[connect x]\n", 1, "takes no name" },
	{ "[device]\n", 1, "needs a name" },
	{ "[device so ft]\n", 1, "is no name" },
	{ "[device so/ft]\n", 1, "is no name" },
	{ "[device \x01]\n", 1, "not a text file" },
	{ "[limits nobody-has-this-name]\n", 1, "no user" },
	{ "[limits -1]\n", 1, "no user" },
	{ "[grant]\n", 1, "needs a name" },
	{ "[grant x/y]\n", 1, "is no name" },
	{ "[grant x]\nusers = nobody-has-this-name\n", 2, "no user" },
	{ "[grant x]\ngroups = nobody-has-this-name\n", 2, "no group" },
	{ "[grant x]\ncontexts = many\n", 2, "a number" },
	{ "[grant x]\nmemlock = on\n", 2, "a number" },
	{ "[grant x]\nmemlock = 1\n", 2, "from 4096" },
	{ "[grant x]\nrdma_cm = perhaps\n", 2, "one of: off on" },
	{ "[grant x]\ndevices = a\ndevices = b\n", 3, "twice" },
	{ "[grant x]\nguid = 1\n", 2, "no setting 'guid'" },
	{ "[daemon]\nnonsense\n", 2, "neither" },
	{ "[daemon]\n= on\n", 2, "neither" },
	{ "[daemon]\ncma =\n", 2, "no value" },
	{ "[daemon]\ncma = maybe\n", 2, "one of: off on" },
	{ "[daemon]\ncma = on\ncma = on\n", 3, "twice" },
	{ "[daemon]\nfoo = on\n", 2, "no setting 'foo'" },
	{ "[daemon]\nusers = root\n", 2, "no setting 'users'" },
	{ "[daemon]\nconnect = some\n", 2, "one of: domain any" },
	{ "[daemon]\nlog_level = loud\n", 2, "one of: error" },
	{ "[daemon]\nlane_slots = 3\n", 2, "power of two" },
	{ "[daemon]\nlane_slots = 1\n", 2, "power of two" },
	{ "[daemon]\nlane_slots = 512\n", 2, "from 0 to 256" },
	{ "[daemon]\nmax_connections = 0\n", 2, "from 1" },
	{ "[daemon]\nmax_connections = -1\n", 2, "a number" },
	{ "[daemon]\nmax_connections = 1e3\n", 2, "a number" },
	{ "[daemon]\nmax_connections = 10X\n", 2, "a number" },
	{ "[daemon]\nmax_connections = 10KK\n", 2, "a number" },
	{ "[daemon]\nmax_connections = 99999999999999999999\n", 2, "a number" },
	{ "[daemon]\nmax_connections = 99999999999999T\n", 2, "a number" },
	{ "[daemon]\ndomain_share = 101\n", 2, "from 1 to 100" },
	{ "[device soft0]\nlid = 0\n", 2, "from 1 to 49151" },
	{ "[device soft0]\nlid = 0xc000\n", 2, "from 1 to 49151" },
	{ "[device soft0]\nmtu = 1500\n", 2, "256, 512" },
	{ "[device soft0]\nmtu = 128\n", 2, "from 256" },
	{ "[device soft0]\nguid = 0\n", 2, "other than 0" },
	{ "[device soft0]\nguid = xyz\n", 2, "hexadecimal" },
	{ "[device soft0]\nguid = 11112222333344445\n", 2, "hexadecimal" },
	{ "[device soft0]\ngid_prefix = fe80::\n", 2, "hexadecimal" },
	{ "[device soft0]\nlink_layer = token-ring\n", 2, "one of: infiniband ethernet" },
	{ "[device soft0]\natomics = none\n", 2, "one of: device global" },
	{ "[device soft0]\nport = up\n", 2, "one of: down active" },
	{ "[device a]\nlid = 5\n\n[device b]\nlid = 5\n", 4, "has the lid of device a" },
	{ "[device a]\nguid = 5\n[device b]\nguid = 5\n", 3, "has the guid of device a" },
	{ "[device soft0]\nnetdev = a/b\n", 2, "name of a network interface" },
	{ "[device soft0]\nnetdev = longer-than-it-may\n", 2, "name of a network interface" },
	{ "[device a]\nlink_layer = ethernet\nnetdev = eth7\n\n[device b]\nlink_layer = ethernet\nnetdev = eth7\n", 5,
		"has the netdev of device a" },
	{ "[device a]\nlink_layer = ethernet\nguid = 0256:5344:0000:0001\n[device b]\nlink_layer = ethernet\n"
	  "guid = 0256:53ff:ff00:0001\n",
		4, "has the MAC address" },
	{ "[limits]\nqps = many\n", 2, "a number" },
	{ "[limits]\nqps = 1T\n", 2, "from 0 to" },
	{ "[limits]\nsoup = 1\n", 2, "no setting 'soup'" },
	{ "[limits]\nqps = 1\nqps = 2\n", 3, "twice" },
	{ "[limits root]\nqps = 1\n[limits 0]\nqps = 2\n", 4, "twice" },
	{ "[connect]\nusers = nobody-has-this-name\n", 2, "no user" },
	{ "[connect]\ngroups = nobody-has-this-name\n", 2, "no group" },
};

START_TEST(wrong_line_is_refused_by_name)
{
	char where[128];

	config = NULL;
	ck_assert_int_lt(read_text(refusals[_i].text), 0);
	ck_assert_ptr_null(config);
	snprintf(where, sizeof(where), "%s:%u: ", main_file, refusals[_i].line);
	ck_assert_msg(strncmp(error, where, strlen(where)) == 0, "'%s' does not begin with '%s'",
		error, where);
	ck_assert_msg(strstr(error + strlen(where), refusals[_i].why) != NULL,
		"'%s' does not say '%s'", error, refusals[_i].why);
}
END_TEST

START_TEST(nul_and_long_lines_are_refused)
{
	static const char nul[] = "[daemon]\ncma\0 = on\n";
	char text[2048];

	write_file(main_file, nul, sizeof(nul) - 1);
	ck_assert_int_lt(config_read(main_file, false, &config, error, sizeof(error)), 0);
	ck_assert_ptr_nonnull(strstr(error, ":2: not a text file"));
	memset(text, '#', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	ck_assert_int_lt(read_text(text), 0);
	ck_assert_ptr_nonnull(strstr(error, ":1: line longer"));
}
END_TEST

START_TEST(too_many_devices_are_refused)
{
	char text[4096];
	int n = 0;

	for (int i = 0; i <= CONFIG_DEVICES_MAX; i++)
		n += snprintf(text + n, sizeof(text) - (size_t)n, "[device d%d]\n", i);
	ck_assert_int_lt(read_text(text), 0);
	ck_assert_ptr_nonnull(strstr(error, ":33: more than 32 devices"));
}
END_TEST

START_TEST(missing_file_is_an_error_unless_optional)
{
	ck_assert_int_eq(config_read(main_file, false, &config, error, sizeof(error)), -ENOENT);
	ck_assert_ptr_nonnull(strstr(error, main_file));
	ck_assert_int_eq(config_read(main_file, true, &config, error, sizeof(error)), 0);
}
END_TEST

START_TEST(folder_is_no_file)
{
	ck_assert_int_lt(config_read(dir, false, &config, error, sizeof(error)), 0);
}
END_TEST

START_TEST(empty_file_has_the_defaults)
{
	ck_assert_int_eq(read_text("# nothing\n\n;nothing\n"), 0);
	ck_assert_uint_eq(config->n_devices, 1);
	ck_assert_str_eq(config->devices[0].name, "soft0");
	ck_assert_uint_eq(config->devices[0].lid, 1);
	ck_assert_uint_eq(config->devices[0].mtu, 4096);
	ck_assert_uint_eq(config->devices[0].link_layer, LINK_INFINIBAND);
	ck_assert_uint_eq(config->devices[0].atomics, ATOMICS_GLOBAL);
	ck_assert_uint_eq(config->devices[0].gid_prefix >> 48, 0xfe80);
	ck_assert(config->devices[0].active);
	ck_assert(config->cma);
	ck_assert(config->connect_any);
	ck_assert_uint_eq(config->lane_slots, 0);
	ck_assert(config_admits(config, 12345, NULL, 0));
	/* What stays without any process leaves half of the machine, however small that is. */
	ck_assert_uint_gt(config->limit[SLOT_PERSISTENT_BYTES], 0);
	ck_assert_uint_le(config->limit[SLOT_PERSISTENT_BYTES], 64ull << 30);
	ck_assert_uint_le(config->limit[SLOT_PERSISTENT_BYTES],
		(uint64_t)sysconf(_SC_PHYS_PAGES) / 2 * (uint64_t)sysconf(_SC_PAGESIZE));
}
END_TEST

START_TEST(settings_mean_what_they_say)
{
	uint64_t limit[SLOT_N];
	gid_t group = 0;

	ck_assert_int_eq(read_text("[daemon]\n"
				   "log_level = debug\n"
				   "cma=off\n"
				   "  connect = domain  \n"
				   "lane_slots = 2\n"
				   "max_connections = 4K\n"
				   "[device left]\n"
				   "guid = 0002:c903:0000:0001\n"
				   "lid = 17\n"
				   "gid_prefix = fec0:0000:0000:0001\n"
				   "mtu = 2048\n"
				   "port = down\n"
				   "atomics = device\n"
				   "[device right]\n"
				   "link_layer = ethernet\n"
				   "netdev = eth7\n"
				   "[device third]\n"
				   "link_layer = ethernet\n"
				   "[limits]\n"
				   "qps = 10\n"
				   "queue_bytes = 1G\n"
				   "[limits 4711]\n"
				   "qps = 20\n"
				   "[connect]\n"
				   "users = 4711, 4712\n"
				   "groups = root\n"),
		0);
	ck_assert_int_eq(config->log_level, LOG_LEVEL_DEBUG);
	ck_assert(!config->cma);
	ck_assert(!config->connect_any);
	ck_assert_uint_eq(config->lane_slots, 2);
	ck_assert_uint_eq(config->max_connections, 4096);
	ck_assert_uint_eq(config->n_devices, 3);
	ck_assert_uint_eq(config->devices[0].guid, 0x0002c90300000001ull);
	ck_assert_uint_eq(config->devices[0].lid, 17);
	ck_assert_uint_eq(config->devices[0].gid_prefix, 0xfec0000000000001ull);
	ck_assert_uint_eq(config->devices[0].mtu, 2048);
	ck_assert(!config->devices[0].active);
	ck_assert_uint_eq(config->devices[0].atomics, ATOMICS_DEVICE);
	ck_assert_uint_eq(config->devices[1].link_layer, LINK_ETHERNET);
	ck_assert_str_eq(config->devices[1].netdev, "eth7");
	ck_assert_str_eq(config->devices[2].netdev, "auto");
	ck_assert_uint_eq(config->devices[1].nth_ethernet, 0);
	ck_assert_uint_eq(config->devices[2].nth_ethernet, 1);
	config_limits(config, 1, limit);
	ck_assert_uint_eq(limit[SLOT_QPS], 10);
	ck_assert_uint_eq(limit[SLOT_QUEUE_BYTES], 1 << 30);
	config_limits(config, 4711, limit);
	ck_assert_uint_eq(limit[SLOT_QPS], 20);
	ck_assert_uint_eq(limit[SLOT_QUEUE_BYTES], 1 << 30);
	ck_assert(config_admits(config, 4711, NULL, 0));
	ck_assert(!config_admits(config, 4713, NULL, 0));
	ck_assert(config_admits(config, 4713, &group, 1));
}
END_TEST

START_TEST(grants_take_the_place_of_the_default_one)
{
	config = config_new();
	ck_assert_uint_eq(config->n_grants, 1);
	ck_assert_str_eq(config->grants[0].name, "rdma");
	ck_assert(!config->grants[0].users.any);
	config_free(config);
	ck_assert_int_eq(read_text("[grant one]\n"
				   "users = 4711 4712\n"
				   "devices = mlx5_0 rxe*\n"
				   "memlock = 1G\n"
				   "[grant two]\n"
				   "groups = root\n"
				   "cgroups = /system.slice\n"
				   "contexts = 0\n"
				   "rdma_cm = off\n"
				   "memlock = off\n"),
		0);
	ck_assert_uint_eq(config->n_grants, 2);
	ck_assert_uint_eq(config->grants[0].users.n, 2);
	ck_assert_str_eq(config->grants[0].devices, "mlx5_0 rxe*");
	ck_assert_uint_eq(config->grants[0].memlock, 1 << 30);
	ck_assert_uint_eq(config->grants[0].contexts, 256);
	ck_assert(config->grants[0].rdma_cm);
	ck_assert_str_eq(config->grants[1].devices, "*");
	ck_assert_str_eq(config->grants[1].cgroups, "/system.slice");
	ck_assert_uint_eq(config->grants[1].contexts, 0);
	ck_assert_uint_eq(config->grants[1].memlock, 0);
	ck_assert(!config->grants[1].rdma_cm);
}
END_TEST

START_TEST(drop_ins_add_and_override_in_order)
{
	write_text(drop_in_b, "[daemon]\ncma = on\n");
	write_text(drop_in_a, "[daemon]\ncma = off\nlane_slots = 4\n[device soft0]\nmtu = 512\n");
	ck_assert_int_eq(read_text("[device soft0]\nlid = 9\nmtu = 256\n"), 0);
	ck_assert(config->cma);
	ck_assert_uint_eq(config->lane_slots, 4);
	ck_assert_uint_eq(config->n_devices, 1);
	ck_assert_uint_eq(config->devices[0].lid, 9);
	ck_assert_uint_eq(config->devices[0].mtu, 512);
}
END_TEST

START_TEST(wrong_drop_in_is_named)
{
	write_text(drop_in_b, "[daemon]\n\nfoo = 1\n");
	ck_assert_int_lt(read_text("[daemon]\n"), 0);
	ck_assert_ptr_nonnull(strstr(error, "conf.d/b.conf:3: "));
}
END_TEST

START_TEST(reload_replaces_devices_and_limits)
{
	struct client client;
	uint64_t limit[SLOT_N];

	fixture_setup();
	client_open(&client);
	ck_assert_int_eq(read_text("[device other]\nlid = 3\n[limits]\npds = 1\n"), 0);
	ck_assert_int_eq(server_configure(fixture_server, config, error, sizeof(error)), 0);
	config_limits(config, 0, limit);
	ck_assert_uint_eq(limit[SLOT_PDS], 1);
	config = NULL;
	ck_assert_ptr_null(server_device(fixture_server, "soft0"));
	ck_assert_ptr_nonnull(server_device(fixture_server, "other"));
	/* The open context goes on, on a device that is in no list any more. */
	ck_assert_int_gt(client_qp(&client, 2, client.qpn), 0);
	client_close(&client);
	fixture_teardown();
}
END_TEST

START_TEST(failed_reload_keeps_the_old)
{
	struct device *device;

	fixture_setup();
	device = server_device(fixture_server, "soft0");
	ck_assert_int_eq(read_text("[device soft0]\nlid = 5\n[device other]\nlid = 3\n"), 0);
	backend_fake_fail(2, ENXIO);
	ck_assert_int_eq(server_configure(fixture_server, config, error, sizeof(error)), -ENXIO);
	config = NULL;
	ck_assert_ptr_eq(server_device(fixture_server, "soft0"), device);
	ck_assert_uint_eq(device->config.lid, 1);
	ck_assert_ptr_null(server_device(fixture_server, "other"));
	fixture_teardown();
}
END_TEST

START_TEST(unchanged_device_stays)
{
	struct device *device;

	fixture_setup();
	device = server_device(fixture_server, "soft0");
	ck_assert_int_eq(read_text("[device soft0]\n[device other]\n"), 0);
	ck_assert_int_eq(server_configure(fixture_server, config, error, sizeof(error)), 0);
	config = NULL;
	ck_assert_ptr_eq(server_device(fixture_server, "soft0"), device);
	fixture_teardown();
}
END_TEST

/* Every setting is in the manual, so that none is added without a word about it. */
START_TEST(manual_has_every_setting)
{
	const char *src = getenv("VERBSD_SRCDIR");
	static char text[65536];
	char path[512], key[64];
	FILE *file;
	size_t n;

	snprintf(path, sizeof(path), "%s/doc/verbsd.conf.5", src ? src : ".");
	file = fopen(path, "re");
	ck_assert_msg(file != NULL, "%s: %s", path, strerror(errno));
	n = fread(text, 1, sizeof(text) - 1, file);
	text[n] = '\0';
	fclose(file);
	for (unsigned i = 0; i < n_options; i++) {
		snprintf(key, sizeof(key), ".It Cm %s", options[i].key);
		ck_assert_msg(
			strstr(text, key) != NULL, "%s is not in the manual", options[i].key);
	}
	for (unsigned i = 0; i < SLOT_N; i++) {
		snprintf(key, sizeof(key), ".It Cm %s", slot_info[i].name);
		ck_assert_msg(
			strstr(text, key) != NULL, "%s is not in the manual", slot_info[i].name);
	}
}
END_TEST

static void port_is(struct client *client, const char *text, unsigned want)
{
	struct device *device = server_device(fixture_server, "soft0");

	ck_assert_int_eq(read_text(text), 0);
	ck_assert_int_eq(server_configure(fixture_server, config, error, sizeof(error)), 0);
	config = NULL;
	ck_assert_ptr_eq(server_device(fixture_server, "soft0"), device);

	struct event_got event = client_event(client);

	ck_assert_uint_eq(event.opcode, want ? VSD__OP__EV_ASYNC : 0);
	if (want) {
		const Vsd__EvAsync *async = (const void *)event.msg;

		ck_assert_uint_eq(async->context, client->context);
		ck_assert_uint_eq(async->event, want);
		ck_assert_uint_eq(async->port, 1);
	}
	event_release(&event);
}

START_TEST(whoever_has_a_device_open_hears_of_its_port)
{
	enum { ACTIVE = 9, ERR = 10 }; /* enum ibv_event_type */
	struct client client;

	fixture_setup();
	client_open(&client);
	port_is(&client, "[device soft0]\nport = down\n", ERR);
	port_is(&client, "[device soft0]\nport = down\n", 0);
	port_is(&client, "[device soft0]\n[device other]\nport = down\n", ACTIVE);
	/* Nobody has that one open. */
	port_is(&client, "[device soft0]\n[device other]\n", 0);
	client_close(&client);
	fixture_teardown();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("config");
	TCase *tcase = harness_tcase(suite, "config");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_loop_test(tcase, wrong_line_is_refused_by_name, 0,
		(int)(sizeof(refusals) / sizeof(refusals[0])));
	tcase_add_test(tcase, nul_and_long_lines_are_refused);
	tcase_add_test(tcase, too_many_devices_are_refused);
	tcase_add_test(tcase, missing_file_is_an_error_unless_optional);
	tcase_add_test(tcase, folder_is_no_file);
	tcase_add_test(tcase, empty_file_has_the_defaults);
	tcase_add_test(tcase, settings_mean_what_they_say);
	tcase_add_test(tcase, grants_take_the_place_of_the_default_one);
	tcase_add_test(tcase, drop_ins_add_and_override_in_order);
	tcase_add_test(tcase, wrong_drop_in_is_named);
	tcase_add_test(tcase, reload_replaces_devices_and_limits);
	tcase_add_test(tcase, failed_reload_keeps_the_old);
	tcase_add_test(tcase, unchanged_device_stays);
	tcase_add_test(tcase, whoever_has_a_device_open_hears_of_its_port);
	tcase_add_test(tcase, manual_has_every_setting);
	return harness_run(suite);
}
