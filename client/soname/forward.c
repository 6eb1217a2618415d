/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Of the form whose SONAME is libibverbs.so.1 alone: what it does not implement goes to the real library by a jump, so
 * that arguments of any number and type arrive. The target is looked up at the first call, under the version that the
 * caller was linked with: a provider of another version than the real library's is not served by it.
 */
#include "client/soname/forward.h"

#include <errno.h>
#include <stddef.h>
#include <stdint.h>

#include "client/abi/real.h"

#ifndef __x86_64__
#error "the forwarders are written for x86-64"
#endif

struct forward {
	void *jump; /* the target, or code that looks for it */
	_Atomic(void *) target;
	const char *name, *version;
	uint64_t pointer; /* the result is a pointer */
};

_Static_assert(sizeof(struct forward) == 40, "as the assembler below lays it out");

static long missing_int(void)
{
	errno = ENOSYS;
	return ENOSYS;
}

static void *missing_pointer(void)
{
	errno = ENOSYS;
	return NULL;
}

/* Called by forward_first. */
__attribute__((used, visibility("hidden"))) void *forward_resolve(struct forward *forward);

void *forward_resolve(struct forward *forward)
{
	void *target = real_symbol(&forward->target, forward->name, forward->version);

	if (!target)
		target = forward->pointer ? (void *)missing_pointer : (void *)missing_int;
	__atomic_store_n(&forward->jump, target, __ATOMIC_RELEASE);
	return target;
}

/*
 * At a first call, with the struct in r11: everything that may hold an argument is kept. The stack is aligned to 16
 * after the seven pushes and the return address.
 */
__asm__(".pushsection .text\n"
	".type forward_first, @function\n"
	"forward_first:\n"
	"	.cfi_startproc\n"
	"	push %rdi\n	push %rsi\n	push %rdx\n	push %rcx\n	push %r8\n	push %r9\n	push %rax\n"
	"	sub $128, %rsp\n"
	"	.cfi_adjust_cfa_offset 184\n"
	"	movups %xmm0, (%rsp)\n	movups %xmm1, 16(%rsp)\n"
	"	movups %xmm2, 32(%rsp)\n	movups %xmm3, 48(%rsp)\n"
	"	movups %xmm4, 64(%rsp)\n	movups %xmm5, 80(%rsp)\n"
	"	movups %xmm6, 96(%rsp)\n	movups %xmm7, 112(%rsp)\n"
	"	mov %r11, %rdi\n"
	"	call forward_resolve\n"
	"	mov %rax, %r11\n"
	"	movups (%rsp), %xmm0\n	movups 16(%rsp), %xmm1\n"
	"	movups 32(%rsp), %xmm2\n	movups 48(%rsp), %xmm3\n"
	"	movups 64(%rsp), %xmm4\n	movups 80(%rsp), %xmm5\n"
	"	movups 96(%rsp), %xmm6\n	movups 112(%rsp), %xmm7\n"
	"	add $128, %rsp\n"
	"	pop %rax\n	pop %r9\n	pop %r8\n	pop %rcx\n	pop %rdx\n	pop %rsi\n	pop %rdi\n"
	"	.cfi_adjust_cfa_offset -184\n"
	"	jmp *%r11\n"
	"	.cfi_endproc\n"
	".size forward_first, . - forward_first\n"
	".popsection\n");

/* The exported name@version (or name@@version), a symbol fwd_* that the map hides, and its struct. */
#define FORWARD(name, symbol, at, version, pointer)                                                                   \
	__asm__(".pushsection .text\n"                                                                                \
		".p2align 4\n"                                                                                        \
		".globl " symbol "\n"                                                                                 \
		".type " symbol ", @function\n" symbol ":\n"                                                          \
		"	endbr64\n"                                                                                    \
		"	jmp *.L" symbol "_jump(%rip)\n"                                                               \
		".L" symbol "_first:\n"                                                                               \
		"	endbr64\n"                                                                                    \
		"	lea .L" symbol "_jump(%rip), %r11\n"                                                          \
		"	jmp forward_first\n"                                                                          \
		".size " symbol ", . - " symbol "\n"                                                                  \
		".popsection\n"                                                                                       \
		".pushsection .rodata.str1.1, \"aMS\", @progbits, 1\n"                                                \
		".L" symbol "_name: .string \"" name "\"\n"                                                           \
		".L" symbol "_version: .string \"" version "\"\n"                                                     \
		".popsection\n"                                                                                       \
		".pushsection .data.rel.local, \"aw\", @progbits\n"                                                   \
		".p2align 3\n"                                                                                        \
		".L" symbol "_jump:\n"                                                                                \
		"	.quad .L" symbol "_first, 0, .L" symbol "_name, .L" symbol "_version, " #pointer "\n"         \
		".popsection\n"                                                                                       \
		".symver " symbol ", " name at version "\n")

#define PRIVATE_34(name, pointer) FORWARD(#name, "fwd_34_" #name, "@@", "IBVERBS_PRIVATE_34", pointer);
#define PRIVATE_N(n, name, pointer)                                                                                   \
	FORWARD(#name, "fwd_" #n "_" #name, "@", "IBVERBS_PRIVATE_" #n, pointer);
#define PRIVATE(name, pointer)                                                                                        \
	PRIVATE_34(name, pointer)                                                                                     \
	PRIVATE_N(57, name, pointer)                                                                                  \
	PRIVATE_N(59, name, pointer)                                                                                  \
	PRIVATE_N(64, name, pointer)                                                                                  \
	PRIVATE_N(65, name, pointer)
#define PRIVATE_INT(name)     PRIVATE(name, 0)
#define PRIVATE_POINTER(name) PRIVATE(name, 1)

FORWARD_PRIVATE(PRIVATE_INT, PRIVATE_POINTER)

/* How a provider makes itself known: each version has its own name for it. */
#define REGISTER(at, n)                                                                                               \
	FORWARD("verbs_register_driver_" #n, "fwd_register_" #n, at, "IBVERBS_PRIVATE_" #n, 0);

REGISTER("@@", 34)
REGISTER("@@", 57)
REGISTER("@@", 59)
REGISTER("@@", 64)
REGISTER("@@", 65)

#define COMPAT(name, pointer)	FORWARD(#name, "fwd_10_" #name, "@", "IBVERBS_1.0", pointer);
#define COMPAT_INT(name)	COMPAT(name, 0)
#define COMPAT_POINTER(name)	COMPAT(name, 1)

FORWARD_COMPAT(COMPAT_INT, COMPAT_POINTER)
FORWARD("ibv_register_driver", "fwd_11_ibv_register_driver", "@", "IBVERBS_1.1", 0);

/* Ours, and in each version of the interface to providers; the map has it in the first. */
#define GID_TYPE(n)                                                                                                   \
	__asm__(".pushsection .text\n"                                                                                \
		".globl fwd_" #n "_gid_type\n"                                                                        \
		".type fwd_" #n "_gid_type, @function\n"                                                              \
		"fwd_" #n "_gid_type:\n"                                                                              \
		"	endbr64\n"                                                                                    \
		"	jmp ibv_query_gid_type@PLT\n"                                                                 \
		".size fwd_" #n "_gid_type, . - fwd_" #n "_gid_type\n"                                                \
		".popsection\n"                                                                                       \
		".symver fwd_" #n "_gid_type, ibv_query_gid_type@IBVERBS_PRIVATE_" #n "\n");

GID_TYPE(57)
GID_TYPE(59)
GID_TYPE(64)
GID_TYPE(65)

/*
 * A bool that providers read and the real library writes, through the same symbol when we come first in the program's
 * scope: one byte with five names. Elsewhere it stays false, its value unless RDMAV_ALLOW_DISASSOC_DESTROY is set.
 */
#define DISASSOCIATE(at, n)                                                                                           \
	__asm__(".pushsection .bss\n"                                                                                 \
		".globl fwd_" #n "_disassociate\n"                                                                    \
		".type fwd_" #n "_disassociate, @object\n"                                                            \
		".size fwd_" #n "_disassociate, 1\n"                                                                  \
		".set fwd_" #n "_disassociate, disassociate\n"                                                        \
		".popsection\n"                                                                                       \
		".symver fwd_" #n "_disassociate, verbs_allow_disassociate_destroy" at "IBVERBS_PRIVATE_" #n "\n");

__asm__(".pushsection .bss\n"
	".type disassociate, @object\n"
	".size disassociate, 1\n"
	"disassociate: .zero 1\n"
	".popsection\n");

DISASSOCIATE("@@", 34)
DISASSOCIATE("@", 57)
DISASSOCIATE("@", 59)
DISASSOCIATE("@", 64)
DISASSOCIATE("@", 65)
