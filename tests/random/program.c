/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Programs as text: "kind worker id name=value ...", arguments that are 0 left out.
 */
#include "tests/random/program.h"

#include <stdlib.h>
#include <string.h>

#define SGE_NAMES(i) "mr" #i, "off" #i, "len" #i, "tweak" #i

static const struct {
	const char *name;
	const char *args[OP_ARGS];
} kinds[OP_KINDS] = {
	[OP_TD] = { "td", { NULL } },
	[OP_PD] = { "pd", { NULL } },
	[OP_PARENT] = { "parent", { "pd", "td", "alloc" } },
	[OP_CQ] = { "cq", { "size", "channel", "parent", "ex", "overrun" } },
	[OP_SRQ] = { "srq", { "pd", "wr", "sge", "xrcd", "cq" } },
	[OP_MR] = { "mr", { "pd", "off", "len", "access", "shift", "dm", "implicit" } },
	[OP_MW] = { "mw", { "pd", "type" } },
	[OP_QP] = { "qp", { "pd", "type", "send_cq", "recv_cq", "srq", "send_wr", "recv_wr", "sge", "inline",
			    "sig_all", "ex", "xrcd" } },
	[OP_FREE] = { "free", { "what", "fill" } },
	[OP_REREG] = { "rereg", { "flags", "pd", "off", "len", "access" } },
	[OP_RESIZE] = { "resize", { "size" } },
	[OP_LIMIT] = { "limit", { "to", "near" } },
	[OP_CONNECT] = { "connect", { "peer", "how", "timer", "timeout", "retry", "mtu", "access", "peer_access",
				      "rnr", "peer_rnr", "rd", "peer_rd", "dest_rd", "peer_dest_rd" } },
	[OP_DATAGRAM] = { "datagram", { "qkey" } },
	[OP_STATE] = { "state", { "to", "fill", "notify" } },
	[OP_SEND] = { "send", { "opcode", "flags", "more", "imm", "tweak", "target", "is_mw", "off", "compare",
				"swap", "mr", "grh", "sges", SGE_NAMES(0), SGE_NAMES(1), SGE_NAMES(2),
				SGE_NAMES(3), "group", "srq" } },
	[OP_RECV] = { "recv", { "is_srq", "more", "sges", SGE_NAMES(0), SGE_NAMES(1), SGE_NAMES(2),
				SGE_NAMES(3) } },
	[OP_POLL] = { "poll", { NULL } },
	[OP_ARM] = { "arm", { "solicited" } },
	[OP_FILL] = { "fill", { "off", "len", "seed" } },
	[OP_DM] = { "dm", { "len", "align", "seed" } },
	[OP_DM_COPY] = { "dm_copy", { "off", "len", "seed" } },
	[OP_TAGS] = { "tags", { "client" } },
	[OP_TAG] = { "tag", { "what", "tag", "mask", "len", "flags", "count", "seed", "n" } },
	[OP_THREADS] = { "threads", { "n" } },
	[OP_XRCD] = { "xrcd", { "file" } },
	[OP_GROUP] = { "group", { "number", "in" } },
	[OP_PAGES] = { "pages", { "from", "n", "there", "seed" } },
	[OP_ADVISE] = { "advise", { "how", "flags", "sges", SGE_NAMES(0), SGE_NAMES(1) } },
	[OP_SETTLE] = { "settle", { NULL } },
};

struct op *program_add(struct program *program, enum op_kind kind, unsigned worker, uint32_t id)
{
	if (program->n == program->room) {
		program->room = program->room ? 2 * program->room : 256;
		program->ops = realloc(program->ops, program->room * sizeof(*program->ops));
		if (!program->ops)
			abort();
	}
	struct op *op = &program->ops[program->n++];

	memset(op, 0, sizeof(*op));
	op->kind = (uint8_t)kind;
	op->worker = (uint8_t)worker;
	op->id = id;
	return op;
}

void program_free(struct program *program)
{
	free(program->ops);
	*program = (struct program){ 0 };
}

void pattern_fill(uint8_t *memory, uint64_t seed, size_t lo, size_t hi)
{
	for (; lo < hi && lo % 8; lo++)
		memory[lo] = pattern(seed, lo);
	for (; lo + 8 <= hi; lo += 8) {
		uint64_t x = (seed + lo / 8) * 0x9e3779b97f4a7c15ull;

		x ^= x >> 29;
		x *= 0xbf58476d1ce4e5b9ull;
		memcpy(memory + lo, &x, 8); /* the bytes from the lowest on */
	}
	for (; lo < hi; lo++)
		memory[lo] = pattern(seed, lo);
}

const char *op_name(enum op_kind kind)
{
	return kinds[kind].name;
}

void op_print(FILE *to, const struct op *op)
{
	fprintf(to, "%s %u %u", kinds[op->kind].name, op->worker, op->id);
	for (size_t i = 0; i < OP_ARGS && kinds[op->kind].args[i]; i++) {
		if (op->a[i])
			fprintf(to, " %s=%lld", kinds[op->kind].args[i], (long long)op->a[i]);
	}
	fputc('\n', to);
}

void program_print(FILE *to, const struct program *program)
{
	for (size_t i = 0; i < program->n; i++)
		op_print(to, &program->ops[i]);
}

static int kind_named(const char *name)
{
	for (int i = 0; i < OP_KINDS; i++) {
		if (strcmp(kinds[i].name, name) == 0)
			return i;
	}
	return -1;
}

static bool argument_read(struct op *op, char *word)
{
	char *value = strchr(word, '='), *end;

	if (!value)
		return false;
	*value++ = 0;
	for (size_t i = 0; i < OP_ARGS && kinds[op->kind].args[i]; i++) {
		if (strcmp(kinds[op->kind].args[i], word) == 0) {
			op->a[i] = strtoll(value, &end, 10);
			return *value && !*end;
		}
	}
	return false;
}

static bool line_read(struct program *program, char *line)
{
	char *save, *word = strtok_r(line, " \n", &save);
	int kind = word ? kind_named(word) : -1;
	char *worker = strtok_r(NULL, " \n", &save), *id = strtok_r(NULL, " \n", &save);

	if (kind < 0 || !worker || !id || strtoul(worker, NULL, 10) >= WORKERS)
		return false;
	struct op *op = program_add(program, (enum op_kind)kind, (unsigned)strtoul(worker, NULL, 10),
		(uint32_t)strtoul(id, NULL, 10));

	while ((word = strtok_r(NULL, " \n", &save))) {
		if (!argument_read(op, word))
			return false;
	}
	return true;
}

bool program_read(FILE *from, struct program *program)
{
	char line[2048];

	for (unsigned n = 1; fgets(line, sizeof(line), from); n++) {
		if (line[0] == '#' || line[0] == '\n')
			continue;
		if (!line_read(program, line)) {
			fprintf(stderr, "line %u is no operation\n", n);
			return false;
		}
	}
	return true;
}
