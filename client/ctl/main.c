/* SPDX-License-Identifier: BSD-2-Clause */
/* verbsctl: a placeholder until the subcommands are there. */

int main(void)
{
	return 0;
}
