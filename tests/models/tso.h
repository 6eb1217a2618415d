/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * x86-TSO for Promela: memory mem[], and one FIFO store buffer of SBMAX entries per
 * process. The including model defines NLOC, NBUF and LANDED(p, x, y), a statement run
 * when a store of process p reaches memory.
 *
 * A load takes the youngest store of its own buffer, else memory. A buffer drains one
 * entry at any time (proctype cpu). A locked instruction and a full barrier wait for
 * the own buffer to be empty. System calls are no barriers here, although the kernel's
 * locks make them so: nothing may depend on that.
 */
#define SBMAX 2

typedef Buf {
	byte n;
	byte a[SBMAX];
	byte v[SBMAX];
}
byte mem[NLOC];
Buf sb[NBUF];

inline STORE(p, x, y)
{
	atomic {
		sb[p].n < SBMAX;
		sb[p].a[sb[p].n] = x;
		sb[p].v[sb[p].n] = y;
		sb[p].n++
	}
}

inline LOAD(p, x, r)
{
	d_step {
		if
		:: sb[p].n > 1 && sb[p].a[1] == x -> r = sb[p].v[1]
		:: else ->
			if
			:: sb[p].n > 0 && sb[p].a[0] == x -> r = sb[p].v[0]
			:: else -> r = mem[x]
			fi
		fi
	}
}

inline FENCE(p)
{
	sb[p].n == 0
}

/* A locked instruction: barrier and store in one. */
inline LOCKED(p, x, y)
{
	atomic {
		sb[p].n == 0;
		mem[x] = y
	}
}

proctype cpu(byte p)
{
end:	do
	:: d_step {
		sb[p].n > 0 ->
		LANDED(p, sb[p].a[0], sb[p].v[0]);
		mem[sb[p].a[0]] = sb[p].v[0];
		sb[p].a[0] = sb[p].a[1];
		sb[p].v[0] = sb[p].v[1];
		sb[p].n--;
		sb[p].a[sb[p].n] = 0;
		sb[p].v[sb[p].n] = 0
	}
	od
}
