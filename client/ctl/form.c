/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A preload is not found by programs that open libibverbs themselves and ask for a version of a symbol, or whose
 * plugins look into their own libraries first. A library with the name of the real one is; but then it has to have
 * every version that anybody was linked with, or programs that need another one do not start.
 */
#include "client/ctl/form.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/ctl.h"
#include "client/ctl/installed.h"
#include "client/ctl/preload.h"

#define LIBRARY_ENV "VERBSD_LIBRARY"
#define SONAME	    "libibverbs.so.1"

static const char *const names[] = {
	[FORM_AUTO] = "auto",
	[FORM_PRELOAD] = "preload",
	[FORM_SONAME] = "soname",
	[FORM_BOTH] = "both",
};

int form_parse(const char *name, enum form *form)
{
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(names[i], name) == 0) {
			*form = (enum form)i;
			return 0;
		}
	return -EINVAL;
}

/* --- which versions a library defines ------------------------------------------------------------------------------- */

struct versions {
	const char *strings;
	const ElfW(Verdef) *first;
	unsigned n;
};

/* Some entries of the dynamic section are relocated when the library is loaded, some are not. */
static const void *dynamic_pointer(const struct link_map *map, const ElfW(Dyn) *entry)
{
	return (const void *)(entry->d_un.d_ptr < map->l_addr ? map->l_addr + entry->d_un.d_ptr
							      : entry->d_un.d_ptr);
}

static struct versions versions_of(void *library)
{
	struct versions versions = { NULL };
	struct link_map *map;

	if (dlinfo(library, RTLD_DI_LINKMAP, &map) < 0)
		return versions;
	for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
		if (entry->d_tag == DT_STRTAB)
			versions.strings = dynamic_pointer(map, entry);
		else if (entry->d_tag == DT_VERDEF)
			versions.first = dynamic_pointer(map, entry);
		else if (entry->d_tag == DT_VERDEFNUM)
			versions.n = (unsigned)entry->d_un.d_val;
	}
	if (!versions.strings || !versions.first)
		versions.n = 0;
	return versions;
}

static const char *version_name(const struct versions *versions, const ElfW(Verdef) *def)
{
	const ElfW(Verdaux) *aux = (const void *)((const uint8_t *)def + def->vd_aux);

	return versions->strings + aux->vda_name;
}

static const ElfW(Verdef) *version_next(const ElfW(Verdef) *def)
{
	return (const void *)((const uint8_t *)def + def->vd_next);
}

static bool versions_have(const struct versions *versions, const char *name)
{
	const ElfW(Verdef) *def = versions->first;

	for (unsigned i = 0; i < versions->n; i++, def = version_next(def))
		if (strcmp(version_name(versions, def), name) == 0)
			return true;
	return false;
}

/* Whether the library at @path has every version that the system's own has, if there is one. */
static bool stands_in(const char *path)
{
	void *real = dlopen(SONAME, RTLD_LAZY | RTLD_LOCAL), *ours = real ? dlopen(path, RTLD_LAZY | RTLD_LOCAL) : NULL;
	bool all = true;

	if (ours) {
		struct versions has = versions_of(ours), needs = versions_of(real);
		const ElfW(Verdef) *def = needs.first;

		for (unsigned i = 0; i < needs.n && all; i++, def = version_next(def))
			all = versions_have(&has, version_name(&needs, def));
		dlclose(ours);
	}
	if (real)
		dlclose(real);
	return all && (ours || !real);
}

/* --- the environment ------------------------------------------------------------------------------------------------- */

static int preload_set(void)
{
	char *library = installed_find(LIBRARY_ENV, VERBSD_LIBDIR, "libverbsd.so.1");
	int r;

	if (!library) {
		ctl_say("run: the library was not found (%s names another)", LIBRARY_ENV);
		return CTL_CANNOT_RUN;
	}
	r = preload_add(library);
	free(library);
	return r;
}

static bool folder_is(const char *entry, size_t n, const char *folder)
{
	return strlen(folder) == n && memcmp(entry, folder, n) == 0;
}

/* LD_LIBRARY_PATH without @folder. */
static void folder_remove(const char *folder)
{
	const char *old = getenv("LD_LIBRARY_PATH");
	size_t size = old ? strlen(old) + 2 : 0, used = 0;
	char *list = old ? calloc(1, size) : NULL;

	if (!list)
		return;
	for (const char *at = old; *at;) {
		size_t n = strcspn(at, ":;");

		if (!folder_is(at, n, folder))
			used += (size_t)snprintf(list + used, size - used, "%s%.*s", used ? ":" : "", (int)n, at);
		at += n + (at[n] != 0);
	}
	if (*list)
		setenv("LD_LIBRARY_PATH", list, 1);
	else
		unsetenv("LD_LIBRARY_PATH");
	free(list);
}

/* Before all other folders; not a second time. */
static int folder_add(const char *folder)
{
	const char *old = getenv("LD_LIBRARY_PATH");
	char *list;

	if (old && folder_is(old, strcspn(old, ":;"), folder))
		return 0;
	if (asprintf(&list, "%s%s%s", folder, old && *old ? ":" : "", old ? old : "") < 0) {
		ctl_say("run: %s", strerror(ENOMEM));
		return CTL_CANNOT_RUN;
	}
	setenv("LD_LIBRARY_PATH", list, 1);
	free(list);
	return 0;
}

static int soname_set(char *library, bool preload)
{
	int r = preload ? preload_add(library) : preload_try(library);

	if (r != 0)
		return r;
	*strrchr(library, '/') = 0;
	return folder_add(library);
}

int form_set(enum form form)
{
	const char *named = getenv(LIBRARY_ENV);
	char *library;
	int r;

	if (named && *named && form > FORM_PRELOAD) {
		ctl_say("run: %s is for --form preload", LIBRARY_ENV);
		return CTL_USAGE;
	}
	if (form == FORM_PRELOAD || (named && *named))
		return preload_set();
	library = installed_find(NULL, VERBSD_LIBDIR "/verbsd", SONAME);
	if (form == FORM_AUTO && (!library || !stands_in(library))) {
		r = preload_set();
	} else if (!library) {
		ctl_say("run: verbsd/%s was not found", SONAME);
		r = CTL_CANNOT_RUN;
	} else {
		r = soname_set(library, form != FORM_SONAME);
	}
	free(library);
	return r;
}

void form_unset(void)
{
	char *library = installed_find(NULL, VERBSD_LIBDIR "/verbsd", SONAME);

	unsetenv("LD_PRELOAD");
	if (library) {
		*strrchr(library, '/') = 0;
		folder_remove(library);
	}
	free(library);
}
